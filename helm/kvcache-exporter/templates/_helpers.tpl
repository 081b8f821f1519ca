{{/* The chart's name, as it stands in labels. */}}
{{- define "kvcache-exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/*
A name that every kind of resource takes: a Service's has no dots, as releases may have, and begins with a letter. At most 52
characters: a StatefulSet's pods carry its name and a hash of 11 in a label. A changed name keeps a hash, so that two
releases do not share their resources.
*/}}
{{- define "kvcache-exporter.fullname" -}}
{{- $name := .Values.fullnameOverride }}
{{- if not $name }}
{{- $own := default .Chart.Name .Values.nameOverride }}
{{- $name = contains $own .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $own) }}
{{- end }}
{{- $legal := replace "." "-" $name }}
{{- if not (regexMatch "^[a-z]" $legal) }}
{{- $legal = printf "kvcache-%s" $legal }}
{{- end }}
{{- if or (ne $legal $name) (gt (len $legal) 52) }}
{{- $legal = printf "%s-%s" (trunc 43 $legal | trimSuffix "-") (sha256sum $name | trunc 8) }}
{{- end }}
{{- $legal | trimSuffix "-" }}
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
app.kubernetes.io/name: {{ include "kvcache-exporter.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "kvcache-exporter.labels" -}}
{{- $own := fromYaml (include "kvcache-exporter.selectorLabels" .) }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") }}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- toYaml (merge $own (default dict .Values.commonLabels)) }}
{{- end }}

{{/* Labels of a resource and further ones of its own: list of context and labels. */}}
{{- define "kvcache-exporter.labelsWith" -}}
{{- $own := fromYaml (include "kvcache-exporter.labels" (first .)) }}
{{- toYaml (mergeOverwrite $own (default dict (last .))) }}
{{- end }}

{{/* Where an image is pulled from: list of context and the image's values. */}}
{{- define "kvcache-exporter.image" -}}
{{- $root := first . }}
{{- with last . }}
{{- $registry := default .registry (default dict $root.Values.global).imageRegistry }}
{{- $where := empty $registry | ternary .repository (printf "%s/%s" $registry .repository) }}
{{- if .digest }}
{{- printf "%s@%s" $where .digest }}
{{- else }}
{{- printf "%s:%s" $where (default $root.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{/* `imagePullSecrets` of a pod, as YAML. Charts write the global ones as names or as references. */}}
{{- define "kvcache-exporter.imagePullSecrets" -}}
{{- $found := list }}
{{- range concat (default list .Values.imagePullSecrets) (default list (default dict .Values.global).imagePullSecrets) }}
{{- $found = append $found (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- with uniq $found }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The port that the exporter listens on. */}}
{{- define "kvcache-exporter.port" -}}
{{- default .Values.service.port .Values.service.targetPort }}
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
