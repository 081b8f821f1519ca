{{/* What the schema cannot say: values that do not go together. Every message says what to do. */}}
{{- define "kvcache-exporter.validate" -}}
{{- $config := fromYaml (include "kvcache-exporter.config" .) }}
{{- if hasKey $config "Error" }}
{{- fail (printf "config: is not valid YAML once its templates are filled in: %s" $config.Error) }}
{{- end }}
{{- if gt (int .Values.replicaCount) 1 }}
{{- fail "replicaCount: two replicas would both scrape every engine and double every sum; set 1, and kind: StatefulSet with shard.count where one is not enough" }}
{{- end }}
{{- with $config.shard }}
{{- if and (gt (int .count) 1) (eq (int $.Values.shard.count) 1) (not (hasKey . "index")) }}
{{- fail "config.shard.count: nobody would scrape the other shares; set shard.count instead, with kind: StatefulSet, or config.shard.index in a release for each share" }}
{{- end }}
{{- end }}
{{- if and (gt (int .Values.shard.count) 1) (ne .Values.kind "StatefulSet") }}
{{- fail "shard.count: an exporter knows its share by the number in its pod's name; set kind: StatefulSet, or shard.count: 1" }}
{{- end }}
{{- if and (not .Values.existingConfigMap) (not $config.targets) (not $config.requests) (not $config.events) }}
{{- fail "config: found nothing to do; set config.targets (engines to scrape), config.requests (usage logs) or config.events, see helm/kvcache-exporter/examples" }}
{{- end }}
{{- if eq .Values.kind "DaemonSet" }}
{{- range $config.targets }}
{{- if not .static }}
{{- fail "config.targets: every pod of a DaemonSet would scrape all engines and double every sum; read logs (requests) in the DaemonSet and scrape with a second release of kind: Deployment" }}
{{- end }}
{{- end }}
{{- if .Values.persistence.enabled }}
{{- fail "persistence: the pods of a DaemonSet cannot share one claim; set persistence.enabled: false" }}
{{- end }}
{{- end }}
{{- if and .Values.persistence.existingClaim (eq .Values.kind "StatefulSet") }}
{{- fail "persistence.existingClaim: each pod of a StatefulSet has a claim of its own; remove it, or set kind: Deployment" }}
{{- end }}
{{- with .Values.web }}
{{- if and .tls.enabled (not .tls.existingSecret) }}
{{- fail "web.tls: set web.tls.existingSecret to a Secret of type kubernetes.io/tls" }}
{{- end }}
{{- if and (ne .tls.clientAuthType "NoClientCert") (not .tls.caKey) }}
{{- fail "web.tls.clientAuthType: client certificates are checked against web.tls.caKey; set it to a key of web.tls.existingSecret" }}
{{- end }}
{{- if and .basicAuth.enabled (not .existingSecret) }}
{{- fail "web.basicAuth: set web.existingSecret to a Secret with a web configuration file that has basic_auth_users (docs/http.md)" }}
{{- end }}
{{- end }}
{{- if and .Values.configReloader.enabled (or .Values.web.basicAuth.enabled (include "kvcache-exporter.wantsClientCertificate" .)) }}
{{- fail "configReloader: it cannot log in; set configReloader.enabled: false, a changed configuration then restarts the pod" }}
{{- end }}
{{- if and .Values.web.basicAuth.enabled (not .Values.web.basicAuth.existingSecret) }}
{{- range $monitor := list "serviceMonitor" "podMonitor" }}
{{- $its := get $.Values $monitor }}
{{- if and $its.enabled (not $its.basicAuth) }}
{{- fail (printf "%s: Prometheus would be refused (401); set web.basicAuth.existingSecret or %s.basicAuth" $monitor $monitor) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $monitor := list "serviceMonitor" "podMonitor" }}
{{- with get $.Values $monitor }}
{{- $own := include "kvcache-exporter.namespace" $ }}
{{- if and .enabled $.Values.web.tls.enabled $.Values.web.tls.caKey (not .tlsConfig) (ne $own (default $own .namespace)) }}
{{- fail (printf "%s.tlsConfig: a monitor reads Secrets of its own namespace only, and %s is in %s; set %s.tlsConfig with a ca of namespace %s, or web.tls.caKey to empty" $monitor $.Values.web.tls.existingSecret $own $monitor .namespace) }}
{{- end }}
{{- $longest := include "kvcache-exporter.seconds" .interval | float64 }}
{{- if and .enabled .interval .scrapeTimeout (gt (include "kvcache-exporter.seconds" .scrapeTimeout | float64) $longest) }}
{{- fail (printf "%s.scrapeTimeout: %s is longer than the interval of %s, which Prometheus refuses; set at most %s" $monitor .scrapeTimeout .interval .interval) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled }}
{{- fail "serviceMonitor and podMonitor: Prometheus would scrape the exporter twice and double every sum; enable one of them" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.service.enabled) }}
{{- fail "serviceMonitor: there is no Service to find; set service.enabled: true, or use podMonitor" }}
{{- end }}
{{- if .Values.grafanaPublish.enabled }}
{{- range $key := list "url" "existingSecret" }}
{{- if not (get $.Values.grafanaPublish $key) }}
{{- fail (printf "grafanaPublish.%s: needed to publish the boards" $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
