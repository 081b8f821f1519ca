{{/* The chart's name, as it stands in labels. */}}
{{- define "kvcache-exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/*
At most 52 characters: a StatefulSet's pods carry its name and a hash of 11 in a label. A cut name keeps a hash, so that
two long releases do not share their resources.
*/}}
{{- define "kvcache-exporter.fullname" -}}
{{- $name := .Values.fullnameOverride }}
{{- if not $name }}
{{- $own := default .Chart.Name .Values.nameOverride }}
{{- $name = contains $own .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $own) }}
{{- end }}
{{- if gt (len $name) 52 }}
{{- $name = printf "%s-%s" (trunc 43 $name | trimSuffix "-") (sha256sum $name | trunc 8) }}
{{- end }}
{{- $name | trimSuffix "-" }}
{{- end }}

{{/* The full name with a suffix, within the 63 characters of a label: list of context and suffix. */}}
{{- define "kvcache-exporter.named" -}}
{{- $full := include "kvcache-exporter.fullname" (first .) }}
{{- $suffix := last . }}
{{- $room := sub 62 (len $suffix) | int }}
{{- if gt (len $full) $room }}
{{- $full = printf "%s-%s" (trunc (int (sub $room 9)) $full | trimSuffix "-") (sha256sum $full | trunc 8) }}
{{- end }}
{{- printf "%s-%s" $full $suffix }}
{{- end }}

{{- define "kvcache-exporter.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "kvcache-exporter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kvcache-exporter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kvcache-exporter.labels" -}}
{{- $own := fromYaml (include "kvcache-exporter.selectorLabels" .) }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") }}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- toYaml (merge $own .Values.commonLabels) }}
{{- end }}

{{/* Labels of a resource and further ones of its own: list of context and labels. */}}
{{- define "kvcache-exporter.labelsWith" -}}
{{- $own := fromYaml (include "kvcache-exporter.labels" (first .)) }}
{{- toYaml (mergeOverwrite $own (last .)) }}
{{- end }}

{{- define "kvcache-exporter.image" -}}
{{- with .Values.image }}
{{- $where := empty .registry | ternary .repository (printf "%s/%s" .registry .repository) }}
{{- if .digest }}
{{- printf "%s@%s" $where .digest }}
{{- else }}
{{- printf "%s:%s" $where (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "kvcache-exporter.serviceAccountName" -}}
{{- default (.Values.serviceAccount.create | ternary (include "kvcache-exporter.fullname" .) "default") .Values.serviceAccount.name }}
{{- end }}

{{/* A StatefulSet's Service is headless, and so is one that the user wants so. */}}
{{- define "kvcache-exporter.headlessName" -}}
{{- include "kvcache-exporter.named" (list . "headless") }}
{{- end }}

{{- define "kvcache-exporter.scheme" -}}
{{- .Values.web.tls.enabled | ternary "https" "http" }}
{{- end }}
