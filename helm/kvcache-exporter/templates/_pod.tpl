{{/*
The pod, the same for every kind of workload. Neither the chart's version nor anything else that changes without need stands
in it: a new chart must not restart what has not changed.
*/}}
{{- define "kvcache-exporter.podTemplate" -}}
metadata:
  {{- with fromYaml (include "kvcache-exporter.podAnnotations" .) }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  labels:
    {{- $labels := fromYaml (include "kvcache-exporter.selectorLabels" .) }}
    {{- toYaml (merge $labels (default dict .Values.podLabels) (default dict .Values.commonLabels)) | nindent 4 }}
spec:
  serviceAccountName: {{ include "kvcache-exporter.serviceAccountName" . | quote }}
  automountServiceAccountToken: {{ include "kvcache-exporter.usesKubernetes" . | empty | not }}
  {{- include "kvcache-exporter.imagePullSecrets" . | nindent 2 }}
  {{- with .Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ int64 .Values.terminationGracePeriodSeconds }}
  enableServiceLinks: false
  {{- with default (.Values.hostNetwork | ternary "ClusterFirstWithHostNet" "") .Values.dnsPolicy }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- range $key := list "priorityClassName" "runtimeClassName" "hostNetwork" "dnsConfig" "hostAliases" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
  {{- with get $.Values $key }}
  {{ $key }}:
    {{- tpl (toYaml .) $ | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: exporter
      {{- include "kvcache-exporter.container" . | nindent 6 }}
    {{- if .Values.configReloader.enabled }}
    - name: config-reloader
      {{- include "kvcache-exporter.reloader" . | nindent 6 }}
    {{- end }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "kvcache-exporter.volumes" . | nindent 4 }}
{{- end }}

{{- define "kvcache-exporter.podAnnotations" -}}
{{- $found := dict }}
{{- if not (or .Values.existingConfigMap .Values.configReloader.enabled) }}
{{- $_ := set $found "checksum/config" (include "kvcache-exporter.config" . | sha256sum) }}
{{- end }}
{{- if and .Values.prometheusAnnotations.enabled (eq .Values.prometheusAnnotations.resource "pod") }}
{{- $found = merge $found (fromYaml (include "kvcache-exporter.prometheusAnnotations" (list . (include "kvcache-exporter.port" .)))) }}
{{- end }}
{{- toYaml (mergeOverwrite $found (default dict .Values.podAnnotations)) }}
{{- end }}

{{/* List of context and port: a pod's is another than its Service's may be. */}}
{{- define "kvcache-exporter.prometheusAnnotations" -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ last . | quote }}
prometheus.io/path: /metrics
prometheus.io/scheme: {{ include "kvcache-exporter.scheme" (first .) | quote }}
{{- end }}

{{- define "kvcache-exporter.container" -}}
image: {{ include "kvcache-exporter.image" (list . .Values.image) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - serve
  - --config.file=/etc/kvcache-exporter/config/config.yml
  - --web.listen-address=:{{ include "kvcache-exporter.port" . }}
  {{- if include "kvcache-exporter.hasWebConfig" . }}
  - --web.config.file=/etc/kvcache-exporter/web/web.yml
  {{- end }}
  {{- if .Values.web.basicAuth.enabled }}
  - --web.open-probes
  {{- end }}
  - --log.level={{ .Values.log.level }}
  - --log.format={{ .Values.log.format }}
  {{- if gt (int .Values.shard.count) 1 }}
  - --shard.index=$(POD_NAME)
  {{- end }}
  {{- with .Values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or (gt (int .Values.shard.count) 1) .Values.extraEnv }}
env:
  {{- if gt (int .Values.shard.count) 1 }}
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
ports:
  - name: {{ .Values.service.portName | quote }}
    containerPort: {{ include "kvcache-exporter.port" . }}
    protocol: TCP
startupProbe:
  {{- include "kvcache-exporter.probe" (list . "/-/healthy" .Values.startupProbe) | trim | nindent 2 }}
livenessProbe:
  {{- include "kvcache-exporter.probe" (list . "/-/healthy" .Values.livenessProbe) | trim | nindent 2 }}
readinessProbe:
  {{- include "kvcache-exporter.probe" (list . "/-/ready" .Values.readinessProbe) | trim | nindent 2 }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  {{- include "kvcache-exporter.volumeMounts" . | nindent 2 }}
{{- end }}

{{/*
List of context, path and times. The kubelet has no client certificate: where one is required it can only see whether the
port is open. For its lack of a password there is --web.open-probes.
*/}}
{{- define "kvcache-exporter.probe" -}}
{{- $root := index . 0 }}
{{- if include "kvcache-exporter.wantsClientCertificate" $root }}
tcpSocket:
  port: {{ $root.Values.service.portName | quote }}
{{- else }}
httpGet:
  path: {{ index . 1 | quote }}
  port: {{ $root.Values.service.portName | quote }}
  scheme: {{ include "kvcache-exporter.scheme" $root | upper }}
{{- end }}
{{- with index . 2 }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "kvcache-exporter.reloader" -}}
image: {{ include "kvcache-exporter.image" (list . .Values.configReloader.image) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - --watched-dir=/etc/kvcache-exporter/config
  {{- range .Values.extraConfigmapMounts }}
  - {{ include "kvcache-exporter.mapPath" . | printf "--watched-dir=%s" | quote }}
  {{- end }}
  - --reload-url={{ include "kvcache-exporter.scheme" . }}://127.0.0.1:{{ include "kvcache-exporter.port" . }}/-/reload
{{- with .Values.configReloader.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: config
    mountPath: /etc/kvcache-exporter/config
    readOnly: true
  {{- include "kvcache-exporter.mapMounts" . | nindent 2 }}
{{- end }}

{{/* Where one of `extraConfigmapMounts` lies. */}}
{{- define "kvcache-exporter.mapPath" -}}
{{- default (printf "/etc/kvcache-exporter/files/%s" .name) .mountPath }}
{{- end }}

{{- define "kvcache-exporter.mapMounts" -}}
{{- range .Values.extraConfigmapMounts }}
- name: file-{{ .name }}
  mountPath: {{ include "kvcache-exporter.mapPath" . | quote }}
  readOnly: true
{{- end }}
{{- end }}

{{- define "kvcache-exporter.volumeMounts" -}}
- name: config
  mountPath: /etc/kvcache-exporter/config
  readOnly: true
- name: state
  mountPath: /var/lib/kvcache-exporter
# SQLite puts there what a large transaction does not keep in memory.
- name: tmp
  mountPath: /tmp
{{- if include "kvcache-exporter.hasWebConfig" . }}
- name: web
  mountPath: /etc/kvcache-exporter/web
  readOnly: true
{{- end }}
{{- range .Values.extraSecretMounts }}
- name: secret-{{ .name }}
  mountPath: {{ default (printf "/etc/kvcache-exporter/secrets/%s" .name) .mountPath | quote }}
  readOnly: true
{{- end }}
{{- include "kvcache-exporter.mapMounts" . }}
{{- range .Values.hostLogs }}
- name: log-{{ .name }}
  mountPath: {{ default .path .mountPath | quote }}
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "kvcache-exporter.volumes" -}}
- name: config
  configMap:
    name: {{ include "kvcache-exporter.configMapName" . | quote }}
    items:
      - {key: config.yml, path: config.yml}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- if not .Values.persistence.enabled }}
- name: state
  emptyDir:
    sizeLimit: {{ .Values.persistence.emptyDirSizeLimit | quote }}
{{- else if ne .Values.kind "StatefulSet" }}
- name: state
  persistentVolumeClaim:
    claimName: {{ default (include "kvcache-exporter.fullname" .) .Values.persistence.existingClaim | quote }}
{{- end }}
{{- if include "kvcache-exporter.hasWebConfig" . }}
- name: web
  projected:
    sources:
      {{- include "kvcache-exporter.webSources" . | nindent 6 }}
{{- end }}
{{- range .Values.extraSecretMounts }}
- name: secret-{{ .name }}
  secret:
    secretName: {{ .secretName | quote }}
    {{- with .items }}
    items:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- if .optional }}
    optional: true
    {{- end }}
{{- end }}
{{- range .Values.extraConfigmapMounts }}
- name: file-{{ .name }}
  configMap:
    name: {{ .configMap | quote }}
    {{- with .items }}
    items:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- if .optional }}
    optional: true
    {{- end }}
{{- end }}
{{- range .Values.hostLogs }}
- name: log-{{ .name }}
  hostPath:
    path: {{ .path | quote }}
    type: Directory
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The web configuration file and its certificates in one folder, replaced together. */}}
{{- define "kvcache-exporter.webSources" -}}
{{- with .Values.web }}
{{- if .existingSecret }}
- secret:
    name: {{ .existingSecret | quote }}
    items:
      - {key: {{ .existingSecretKey | quote }}, path: web.yml}
{{- else }}
- configMap:
    name: {{ include "kvcache-exporter.named" (list $ "web") | quote }}
    items:
      - {key: web.yml, path: web.yml}
{{- end }}
{{- if .tls.enabled }}
- secret:
    name: {{ .tls.existingSecret | quote }}
    items:
      - {key: {{ .tls.certKey | quote }}, path: tls.crt}
      - {key: {{ .tls.keyKey | quote }}, path: tls.key}
      {{- if ne .tls.clientAuthType "NoClientCert" }}
      - {key: {{ .tls.caKey | quote }}, path: ca.crt}
      {{- end }}
{{- end }}
{{- end }}
{{- end }}
