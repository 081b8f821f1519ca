{{/* What both kinds of monitor say of an endpoint: list of context and the monitor's values. */}}
{{- define "kvcache-exporter.endpoint" -}}
{{- $root := first . }}
{{- $web := $root.Values.web }}
{{- with last . }}
port: {{ $root.Values.service.portName }}
path: /metrics
scheme: {{ include "kvcache-exporter.scheme" $root }}
{{- with .interval }}
interval: {{ . }}
{{- end }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
honorLabels: {{ .honorLabels }}
{{- if .tlsConfig }}
tlsConfig:
  {{- toYaml .tlsConfig | nindent 2 }}
{{- else if $web.tls.enabled }}
tlsConfig:
  {{- if $web.tls.caKey }}
  ca:
    secret:
      name: {{ $web.tls.existingSecret }}
      key: {{ $web.tls.caKey }}
  {{- end }}
  serverName: {{ printf "%s.%s.svc" (include "kvcache-exporter.fullname" $root) (include "kvcache-exporter.namespace" $root) }}
{{- end }}
{{- if .basicAuth }}
basicAuth:
  {{- toYaml .basicAuth | nindent 2 }}
{{- else if $web.basicAuth.enabled }}
basicAuth:
  username:
    name: {{ $web.basicAuth.existingSecret }}
    key: {{ $web.basicAuth.usernameKey }}
  password:
    name: {{ $web.basicAuth.existingSecret }}
    key: {{ $web.basicAuth.passwordKey }}
{{- end }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Metadata of a resource that may be told its namespace, labels and annotations: list of context and its values. */}}
{{- define "kvcache-exporter.monitoringMetadata" -}}
{{- $root := first . }}
{{- with last . }}
name: {{ include "kvcache-exporter.fullname" $root }}
namespace: {{ default (include "kvcache-exporter.namespace" $root) .namespace }}
labels:
  {{- include "kvcache-exporter.labelsWith" (list $root .additionalLabels) | nindent 2 }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* A monitor in another namespace must be told where to look: list of context and the monitor's values. */}}
{{- define "kvcache-exporter.namespaceSelector" -}}
{{- $root := first . }}
{{- with last . }}
{{- $own := include "kvcache-exporter.namespace" $root }}
{{- if .namespaceSelector }}
namespaceSelector:
  {{- toYaml .namespaceSelector | nindent 2 }}
{{- else if and .namespace (ne .namespace $own) }}
namespaceSelector:
  matchNames: [{{ $own }}]
{{- end }}
{{- end }}
{{- end }}
