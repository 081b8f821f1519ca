{{/*
The rule groups: files/rules.yaml with the values in. The file is made by the same code as alerts/generated; `${name}` in
it stands for a value. Helm's braces need no care, since the file is data.
*/}}
{{- define "kvcache-exporter.ruleGroups" -}}
{{- $data := .Files.Get "files/rules.yaml" | fromYaml }}
{{- $values := .Values.prometheusRule }}
{{- $links := "" }}
{{- range $values.keepLabels }}
{{- $links = printf "%s%s" $links ($data.keep_link | replace "${label}" .) }}
{{- end }}
{{- $common := dict
  "keep" (join ", " $values.keepLabels)
  "selector" (default "" $values.jobSelector)
  "keep_links" $links
  "runbook_base" (trimAll "/" $values.runbookBase)
  "dashboard_base" (trimAll "/" $values.dashboardBase)
}}
{{- $groups := list }}
{{- range $group := $data.groups }}
{{- $rules := list }}
{{- range $rule := $group.rules }}
{{- $own := dict "enabled" true }}
{{- if $rule.alert }}
{{- /* null takes an alert out, too. */}}
{{- $own = default (dict "enabled" false) (get (default dict $values.alerts) $rule.alert) }}
{{- end }}
{{- if $own.enabled }}
{{- $filled := fromJson (include "kvcache-exporter.filled" (list $rule $common $own $data.objective_edges)) }}
{{- if $rule.alert }}
{{- $_ := set $filled "labels" (merge $filled.labels (default dict $values.additionalRuleLabels)) }}
{{- $_ := set $filled "annotations" (merge $filled.annotations (default dict $values.additionalRuleAnnotations)) }}
{{- end }}
{{- $rules = append $rules $filled }}
{{- end }}
{{- end }}
{{- if $rules }}
{{- $groups = append $groups (dict "name" $group.name "interval" $values.interval "rules" $rules) }}
{{- end }}
{{- end }}
{{- with $values.rules }}
{{- $groups = append $groups (dict "name" "kvcache-own" "interval" $values.interval "rules" .) }}
{{- end }}
groups:
  {{- toYaml $groups | nindent 2 }}
{{- end }}

{{/* One rule with its values in, as JSON: list of rule, common values, the alert's values, edges of the objective. */}}
{{- define "kvcache-exporter.filled" -}}
{{- $rule := index . 0 }}
{{- $edges := index . 3 }}
{{- $all := deepCopy (index . 1) }}
{{- range $name, $value := index . 2 }}
{{- $text := include "kvcache-exporter.plain" $value }}
{{- $_ := set $all $name $text }}
{{- if kindIs "string" $value }}
{{- $_ := set $all (printf "%s_seconds" $name) (include "kvcache-exporter.seconds" $value) }}
{{- end }}
{{- if and (eq $name "objective") (hasKey $edges $text) }}
{{- $_ := set $all "objective_edge" (get $edges $text) }}
{{- end }}
{{- end }}
{{- $filled := dict }}
{{- range $key, $value := $rule }}
{{- if kindIs "map" $value }}
{{- $inner := dict }}
{{- range $name, $text := $value }}
{{- $_ := set $inner $name (include "kvcache-exporter.put" (list $text $all)) }}
{{- end }}
{{- $_ := set $filled $key $inner }}
{{- else }}
{{- $text := include "kvcache-exporter.put" (list $value $all) }}
{{- if eq $key "expr" }}
{{- /* What an empty list of labels or matchers leaves behind. */}}
{{- $text = regexReplaceAll "([{(]), " $text "${1}" }}
{{- $text = regexReplaceAll ", ([})])" $text "${1}" | replace "{}" "" }}
{{- end }}
{{- $_ := set $filled $key $text }}
{{- end }}
{{- end }}
{{- toJson $filled }}
{{- end }}

{{/* A text with values in: list of text and values. */}}
{{- define "kvcache-exporter.put" -}}
{{- $text := first . }}
{{- range $name, $value := last . }}
{{- $text = $text | replace (printf "${%s}" $name) $value }}
{{- end }}
{{- $text }}
{{- end }}

{{/* A number as it is written: Helm holds 1000000 as 1e+06. */}}
{{- define "kvcache-exporter.plain" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}
{{- printf "%.0f" . }}
{{- else }}
{{- toString . }}
{{- end }}
{{- end }}

{{/* Seconds of a duration such as 1h30m. */}}
{{- define "kvcache-exporter.seconds" -}}
{{- $units := dict "ms" 0.001 "s" 1 "m" 60 "h" 3600 "d" 86400 "w" 604800 "y" 31536000 }}
{{- $sum := 0.0 }}
{{- range regexFindAll "[0-9]+(ms|[smhdwy])" (default "" .) -1 }}
{{- $unit := regexFind "[a-z]+" . }}
{{- $sum = addf $sum (mulf (regexFind "[0-9]+" . | float64) (get $units $unit)) }}
{{- end }}
{{- include "kvcache-exporter.plain" $sum }}
{{- end }}
