{{/* The exporter's configuration as it goes into the ConfigMap: the checksum is over this and nothing else. */}}
{{- define "kvcache-exporter.config" -}}
{{- $config := fromYaml (tpl (toYaml .Values.config) .) }}
{{- if gt (int .Values.shard.count) 1 }}
{{- $shard := dict "count" (int .Values.shard.count) }}
{{- $_ := set $config "shard" (mergeOverwrite (default dict $config.shard) $shard) }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- define "kvcache-exporter.configMapName" -}}
{{- default (include "kvcache-exporter.fullname" .) .Values.existingConfigMap }}
{{- end }}

{{/* Whether a web configuration file is given to the exporter: "true" or nothing. */}}
{{- define "kvcache-exporter.hasWebConfig" -}}
{{- if or .Values.web.existingSecret .Values.web.tls.enabled }}true{{ end }}
{{- end }}

{{/* Whether nobody gets an answer without a certificate of their own: "true" or nothing. */}}
{{- define "kvcache-exporter.wantsClientCertificate" -}}
{{- with .Values.web.tls }}
{{- if and .enabled (eq .clientAuthType "RequireAndVerifyClientCert") }}true{{ end }}
{{- end }}
{{- end }}

{{/* Without passwords in it the file holds nothing secret and the chart writes it. */}}
{{- define "kvcache-exporter.webConfig" -}}
{{- with .Values.web.tls }}
tls_server_config:
  cert_file: tls.crt
  key_file: tls.key
  min_version: {{ .minVersion }}
  {{- if ne .clientAuthType "NoClientCert" }}
  client_auth_type: {{ .clientAuthType }}
  client_ca_file: ca.crt
  {{- with .clientAllowedSans }}
  client_allowed_sans:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Whether some target is found by asking the API server: "true" or nothing. */}}
{{- define "kvcache-exporter.usesKubernetes" -}}
{{- range (fromYaml (include "kvcache-exporter.discovery" .)) }}true{{ end }}
{{- end }}

{{/* What the roles must allow, as YAML: the rules by namespace; "*" stands for all of them. */}}
{{- define "kvcache-exporter.discovery" -}}
{{- $roles := dict }}
{{- range (fromYaml (include "kvcache-exporter.config" .)).targets }}
{{- /* With a kubeconfig the pod's own account is not used. */}}
{{- if and .kubernetes (not .kubernetes.kubeconfig) }}
{{- with .kubernetes }}
{{- $role := default "pod" .role }}
{{- range default (list "*") .namespaces }}
{{- $_ := set $roles . (append (default list (get $roles .)) $role | uniq | sortAlpha) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $roles }}
{{- end }}

{{/* Rules of a Role: a list of the config's `role`s. */}}
{{- define "kvcache-exporter.discoveryRules" -}}
{{- range . }}
{{- if eq . "endpointslice" }}
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
{{- else }}
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
{{- end }}
{{- end }}
{{- end }}
