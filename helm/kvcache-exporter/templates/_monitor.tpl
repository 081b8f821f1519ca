{{/* What both kinds of monitor say of an endpoint: list of context and the monitor's values. */}}
{{- define "kvcache-exporter.endpoint" -}}
{{- $root := first . }}
{{- $web := $root.Values.web }}
{{- with last . }}
port: {{ $root.Values.service.portName | quote }}
path: /metrics
scheme: {{ include "kvcache-exporter.scheme" $root }}
{{- with .interval }}
interval: {{ . | quote }}
{{- end }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . | quote }}
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
      name: {{ $web.tls.existingSecret | quote }}
      key: {{ $web.tls.caKey | quote }}
  {{- end }}
  serverName: {{ printf "%s.%s.svc" (include "kvcache-exporter.fullname" $root) (include "kvcache-exporter.namespace" $root) | quote }}
{{- end }}
{{- if .basicAuth }}
basicAuth:
  {{- toYaml .basicAuth | nindent 2 }}
{{- else if $web.basicAuth.enabled }}
basicAuth:
  username:
    name: {{ $web.basicAuth.existingSecret | quote }}
    key: {{ $web.basicAuth.usernameKey | quote }}
  password:
    name: {{ $web.basicAuth.existingSecret | quote }}
    key: {{ $web.basicAuth.passwordKey | quote }}
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
name: {{ include "kvcache-exporter.fullname" $root | quote }}
namespace: {{ default (include "kvcache-exporter.namespace" $root) .namespace | quote }}
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
  matchNames: [{{ $own | quote }}]
{{- end }}
{{- end }}
{{- end }}
