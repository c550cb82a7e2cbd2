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

{{/* The places from which the processors `kubernetes` in use read pods, if the mode has them, as JSON. */}}
{{- define "otel-zernel.podSources" -}}
{{- $config := include "otel-zernel.config" . | fromYaml -}}
{{- $places := get (dict "daemonset" (list "pod_logs" "pod_resources" "api") "gateway" (list "api") "sidecar" (list "own_pod")) .Values.mode -}}
{{- $found := list -}}
{{- range $pipeline := dig "service" "pipelines" dict $config -}}
{{- range $id := $pipeline.processors | default list -}}
{{- if eq (splitList "/" $id | first) "kubernetes" -}}
{{- $processor := get ($config.processors | default dict) $id | default dict -}}
{{- if $processor.own_pod -}}
{{- $found = append $found "own_pod" -}}
{{- else if not (and (hasKey $processor "pod_logs") (kindIs "invalid" $processor.pod_logs)) -}}
{{- $found = append $found "pod_logs" -}}
{{- end -}}
{{- if kindIs "map" $processor.pod_resources }}{{ $found = append $found "pod_resources" }}{{ end -}}
{{- if kindIs "map" $processor.api }}{{ if not $processor.api.kubeconfig }}{{ $found = append $found "api" }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $used := list -}}
{{- range $place := $places }}{{ if has $place $found }}{{ $used = append $used $place }}{{ end }}{{ end -}}
{{- $used | toJson -}}
{{- end -}}

{{- define "otel-zernel.readsPods" -}}
{{- if has .from (include "otel-zernel.podSources" .root | fromJsonArray) }}true{{ end -}}
{{- end -}}

{{/* The volumes of these places. A job's own volumes have other names, so those of a sidecar end in the name of the chart. */}}
{{- define "otel-zernel.podSourceVolumes" -}}
{{- if include "otel-zernel.readsPods" (dict "root" . "from" "pod_logs") }}
- name: pod-logs
  hostPath: { path: /var/log/pods, type: Directory }
{{- end }}
{{- if include "otel-zernel.readsPods" (dict "root" . "from" "pod_resources") }}
- name: pod-resources
  hostPath: { path: {{ .Values.presets.kubernetes.kubeletPath }}/pod-resources, type: Directory }
{{- end }}
{{- if include "otel-zernel.readsPods" (dict "root" . "from" "own_pod") }}
- name: podinfo-otel-zernel
  downwardAPI:
    items:
      - { path: labels, fieldRef: { apiVersion: v1, fieldPath: metadata.labels } }
      - { path: annotations, fieldRef: { apiVersion: v1, fieldPath: metadata.annotations } }
{{- end }}
{{- end -}}

{{- define "otel-zernel.podSourceMounts" -}}
{{- if include "otel-zernel.readsPods" (dict "root" . "from" "pod_logs") }}
- { name: pod-logs, mountPath: /var/log/pods, readOnly: true }
{{- end }}
{{- if include "otel-zernel.readsPods" (dict "root" . "from" "pod_resources") }}
- { name: pod-resources, mountPath: /var/lib/kubelet/pod-resources, readOnly: true }
{{- end }}
{{- if include "otel-zernel.readsPods" (dict "root" . "from" "own_pod") }}
- { name: podinfo-otel-zernel, mountPath: /etc/podinfo, readOnly: true }
{{- end }}
{{- end -}}

{{/* "true" if a volume is a folder of the node. */}}
{{- define "otel-zernel.hostPath" -}}
{{- range concat (include "otel-zernel.podSourceVolumes" . | fromYamlArray) .Values.extraVolumes }}{{ if hasKey . "hostPath" }}true{{ end }}{{ end -}}
{{- end -}}

{{/* The rules of the ClusterRole, as YAML. */}}
{{- define "otel-zernel.rules" -}}
{{- $rules := ternary .Values.clusterRole.rules list .Values.clusterRole.create -}}
{{- if include "otel-zernel.readsPods" (dict "root" . "from" "api") -}}
{{- $rules = append $rules (dict "apiGroups" (list "") "resources" (list "pods") "verbs" (list "list" "watch")) -}}
{{- end -}}
{{- toYaml $rules -}}
{{- end -}}

{{- define "otel-zernel.needsRole" -}}
{{- if or .Values.clusterRole.create (include "otel-zernel.readsPods" (dict "root" . "from" "api")) }}true{{ end -}}
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
{{- if include "otel-zernel.readsPods" (dict "root" . "from" "pod_resources") -}}
{{- /* The kubelet's socket is root's. Other containers of the pod keep their user. */ -}}
{{- $context = merge $context (dict "runAsUser" 0 "runAsNonRoot" false) -}}
{{- end -}}
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
{{- if or (include "otel-zernel.hostPID" .) (include "otel-zernel.usesBpf" .) (include "otel-zernel.hostPath" .) .Values.hostNetwork -}}
privileged
{{- else -}}
restricted
{{- end -}}
{{- end -}}
