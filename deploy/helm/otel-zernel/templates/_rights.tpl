{{/* The types of the receivers and processors in use, as JSON. */}}
{{- define "otel-zernel.types" -}}
{{- $types := list -}}
{{- range $pipeline := dig "service" "pipelines" dict (include "otel-zernel.config" . | fromYaml) -}}
{{- range $id := concat ($pipeline.receivers | default list) ($pipeline.processors | default list) -}}
{{- $types = append $types (splitList "/" $id | first) -}}
{{- end -}}
{{- end -}}
{{- uniq $types | toJson -}}
{{- end -}}

{{- define "otel-zernel.uses" -}}
{{- if has .type (include "otel-zernel.types" .root | fromJsonArray) }}true{{ end -}}
{{- end -}}

{{- define "otel-zernel.usesEbpf" -}}
{{- include "otel-zernel.uses" (dict "root" . "type" "ebpf") -}}
{{- end -}}

{{- define "otel-zernel.usesBpf" -}}
{{- if or (include "otel-zernel.usesEbpf" .) (include "otel-zernel.uses" (dict "root" . "type" "bcc")) }}true{{ end -}}
{{- end -}}

{{- define "otel-zernel.hostPID" -}}
{{- if eq .Values.mode "daemonset" -}}
{{- if kindIs "bool" .Values.hostPID }}{{ if .Values.hostPID }}true{{ end }}{{ else }}{{ include "otel-zernel.usesBpf" . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Exactly the capabilities that the configuration needs, as JSON. */}}
{{- define "otel-zernel.capabilities" -}}
{{- $capabilities := list -}}
{{- if include "otel-zernel.usesEbpf" . -}}
{{- $capabilities = list "BPF" "CHECKPOINT_RESTORE" "DAC_READ_SEARCH" "PERFMON" "SYS_PTRACE" -}}
{{- if .Values.presets.ebpf.perfLinks }}{{ $capabilities = append $capabilities "SYS_ADMIN" }}{{ end -}}
{{- end -}}
{{- if include "otel-zernel.uses" (dict "root" . "type" "bcc") -}}
{{- $capabilities = concat $capabilities (list "DAC_READ_SEARCH" "SYS_ADMIN") -}}
{{- end -}}
{{- $capabilities | uniq | toJson -}}
{{- end -}}

{{- define "otel-zernel.securityContext" -}}
{{- $capabilities := dict "drop" (list "ALL") -}}
{{- with include "otel-zernel.capabilities" . | fromJsonArray }}{{ $_ := set $capabilities "add" . }}{{ end -}}
{{- $context := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" $capabilities -}}
{{- if eq .Values.mode "sidecar" -}}
{{- $context = merge $context (include "otel-zernel.user" . | fromYaml) -}}
{{- end -}}
{{- include "otel-zernel.merge" (dict "base" $context "over" .Values.securityContext) -}}
{{- toYaml $context -}}
{{- end -}}

{{- define "otel-zernel.user" -}}
runAsUser: 10001
runAsGroup: 10001
runAsNonRoot: true
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "otel-zernel.podSecurityContext" -}}
{{- $context := include "otel-zernel.user" . | fromYaml -}}
{{- if .Values.statefulset.enabled }}{{ $_ := set $context "fsGroup" 10001 }}{{ end -}}
{{- include "otel-zernel.merge" (dict "base" $context "over" .Values.podSecurityContext) -}}
{{- toYaml $context -}}
{{- end -}}

{{/* The level of the Pod Security Standards that the pods need. */}}
{{- define "otel-zernel.podSecurityLevel" -}}
{{- if or (include "otel-zernel.hostPID" .) (include "otel-zernel.usesBpf" .) .Values.hostNetwork -}}
privileged
{{- else -}}
restricted
{{- end -}}
{{- end -}}
