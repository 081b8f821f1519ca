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
    {{- toYaml (merge $labels .Values.podLabels .Values.commonLabels) | nindent 4 }}
spec:
  serviceAccountName: {{ include "kvcache-exporter.serviceAccountName" . }}
  automountServiceAccountToken: {{ include "kvcache-exporter.usesKubernetes" . | empty | not }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  enableServiceLinks: false
  {{- range $key := list "priorityClassName" "runtimeClassName" "hostNetwork" "dnsPolicy" "dnsConfig" "hostAliases" "nodeSelector" "tolerations" "affinity" }}
  {{- with get $.Values $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- tpl (toYaml .) $ | nindent 4 }}
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
{{- $found = merge $found (fromYaml (include "kvcache-exporter.prometheusAnnotations" .)) }}
{{- end }}
{{- toYaml (mergeOverwrite $found .Values.podAnnotations) }}
{{- end }}

{{- define "kvcache-exporter.prometheusAnnotations" -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .Values.service.port | quote }}
prometheus.io/path: /metrics
prometheus.io/scheme: {{ include "kvcache-exporter.scheme" . }}
{{- end }}

{{- define "kvcache-exporter.container" -}}
image: {{ include "kvcache-exporter.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - serve
  - --config.file=/etc/kvcache-exporter/config/config.yml
  - --web.listen-address=:{{ .Values.service.port }}
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
  - name: {{ .Values.service.portName }}
    containerPort: {{ .Values.service.port }}
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
{{- $tls := $root.Values.web.tls }}
{{- if and $tls.enabled (eq $tls.clientAuthType "RequireAndVerifyClientCert") }}
tcpSocket:
  port: {{ $root.Values.service.portName }}
{{- else }}
httpGet:
  path: {{ index . 1 }}
  port: {{ $root.Values.service.portName }}
  scheme: {{ include "kvcache-exporter.scheme" $root | upper }}
{{- end }}
{{- with index . 2 }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "kvcache-exporter.reloader" -}}
image: {{ .Values.configReloader.image.repository }}:{{ .Values.configReloader.image.tag }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - --listen-address=127.0.0.1:9410
  - --watched-dir=/etc/kvcache-exporter/config
  - --reload-url={{ include "kvcache-exporter.scheme" . }}://127.0.0.1:{{ .Values.service.port }}/-/reload
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
  mountPath: {{ default (printf "/etc/kvcache-exporter/secrets/%s" .name) .mountPath }}
  readOnly: true
{{- end }}
{{- range .Values.extraConfigmapMounts }}
- name: file-{{ .name }}
  mountPath: {{ default (printf "/etc/kvcache-exporter/files/%s" .name) .mountPath }}
  readOnly: true
{{- end }}
{{- range .Values.hostLogs }}
- name: log-{{ .name }}
  mountPath: {{ default .path .mountPath }}
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "kvcache-exporter.volumes" -}}
- name: config
  configMap:
    name: {{ include "kvcache-exporter.configMapName" . }}
    items:
      - {key: config.yml, path: config.yml}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- if not .Values.persistence.enabled }}
- name: state
  emptyDir:
    sizeLimit: {{ .Values.persistence.emptyDirSizeLimit }}
{{- else if ne .Values.kind "StatefulSet" }}
- name: state
  persistentVolumeClaim:
    claimName: {{ default (include "kvcache-exporter.fullname" .) .Values.persistence.existingClaim }}
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
    secretName: {{ .secretName }}
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
    name: {{ .configMap }}
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
    path: {{ .path }}
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
    name: {{ .existingSecret }}
    items:
      - {key: {{ .existingSecretKey }}, path: web.yml}
{{- else }}
- configMap:
    name: {{ include "kvcache-exporter.named" (list $ "web") }}
    items:
      - {key: web.yml, path: web.yml}
{{- end }}
{{- if .tls.enabled }}
- secret:
    name: {{ .tls.existingSecret }}
    items:
      - {key: {{ .tls.certKey }}, path: tls.crt}
      - {key: {{ .tls.keyKey }}, path: tls.key}
      {{- if ne .tls.clientAuthType "NoClientCert" }}
      - {key: {{ .tls.caKey }}, path: ca.crt}
      {{- end }}
{{- end }}
{{- end }}
{{- end }}
