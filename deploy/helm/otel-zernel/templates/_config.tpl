{{/* Merges `over` into `base`, in place: mappings merge, other values replace, null removes. Prints nothing. */}}
{{- define "otel-zernel.merge" -}}
{{- $base := .base -}}
{{- range $key, $value := .over -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $base $key -}}
{{- else if and (kindIs "map" $value) (kindIs "map" (get $base $key)) -}}
{{- include "otel-zernel.merge" (dict "base" (get $base $key) "over" $value) -}}
{{- else -}}
{{- $_ := set $base $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if the preset is on: as the user set it, else in the modes that are given. */}}
{{- define "otel-zernel.preset" -}}
{{- $enabled := get (get .root.Values.presets .preset) "enabled" -}}
{{- if kindIs "bool" $enabled }}{{ if $enabled }}true{{ end }}{{ else if has .root.Values.mode .modes }}true{{ end -}}
{{- end -}}

{{- define "otel-zernel.ebpf" -}}
{{- include "otel-zernel.preset" (dict "root" . "preset" "ebpf" "modes" (list "daemonset")) -}}
{{- end -}}

{{- define "otel-zernel.nvml" -}}
{{- include "otel-zernel.preset" (dict "root" . "preset" "nvml" "modes" (list "daemonset")) -}}
{{- end -}}

{{- define "otel-zernel.prometheus" -}}
{{- include "otel-zernel.preset" (dict "root" . "preset" "prometheus" "modes" (list "daemonset" "sidecar")) -}}
{{- end -}}

{{/* In mode daemonset with ebpf alone: nvml needs no privileged pod, and this preset would. */}}
{{- define "otel-zernel.kubernetes" -}}
{{- $modes := list "sidecar" -}}
{{- if include "otel-zernel.ebpf" . }}{{ $modes = append $modes "daemonset" }}{{ end -}}
{{- include "otel-zernel.preset" (dict "root" . "preset" "kubernetes" "modes" $modes) -}}
{{- end -}}

{{- define "otel-zernel.podResources" -}}
{{- $enabled := .Values.presets.kubernetes.podResources -}}
{{- if kindIs "bool" $enabled }}{{ if $enabled }}true{{ end }}{{ else }}{{ include "otel-zernel.nvml" . }}{{ end -}}
{{- end -}}

{{/* The whole configuration of the collector. */}}
{{- define "otel-zernel.config" -}}
{{- if .Values.alternateConfig -}}
{{- toYaml .Values.alternateConfig -}}
{{- else -}}
{{- if dig "service" "shutdown_timeout" "" .Values.config -}}
{{- fail "set shutdownTimeoutSeconds in place of config.service.shutdown_timeout: the pod's grace period follows from it" -}}
{{- end -}}
{{- $config := include (printf "otel-zernel.config.%s" .Values.mode) . | fromYaml -}}
{{- include "otel-zernel.merge" (dict "base" $config "over" (include "otel-zernel.config.common" . | fromYaml)) -}}
{{- include "otel-zernel.merge" (dict "base" $config "over" .Values.config) -}}
{{- toYaml $config -}}
{{- end -}}
{{- end -}}

{{/* A port in the configuration. In a sidecar, a variable that the webhook adds may change it. */}}
{{- define "otel-zernel.port" -}}
{{- $ports := include "otel-zernel.sidecarPorts" .root | fromYaml -}}
{{- if eq .root.Values.mode "sidecar" }}${env:{{ .name }}:-{{ get $ports .name }}}{{ else }}{{ get $ports .name }}{{ end -}}
{{- end -}}

{{- define "otel-zernel.config.common" -}}
extensions:
  health_check: { endpoint: "${env:MY_POD_IP}:{{ include "otel-zernel.port" (dict "root" . "name" "ZERNEL_HEALTH_PORT") }}" }
{{- if .Values.statefulset.enabled }}
  file_storage: { directory: /var/lib/otel-zernel, create_directory: true }
{{- end }}
{{- if .Values.otlp.endpoint }}
exporters:
  otlp_grpc:
    endpoint: {{ .Values.otlp.endpoint | quote }}
    balancer_name: round_robin
    tls: { insecure: {{ .Values.otlp.insecure }} }
{{- if .Values.statefulset.enabled }}
    sending_queue: { storage: file_storage, sizer: bytes, queue_size: 1000000000 }
{{- end }}
{{- end }}
service:
  shutdown_timeout: {{ .Values.shutdownTimeoutSeconds }}s
  extensions: [health_check{{ if .Values.statefulset.enabled }}, file_storage{{ end }}]
  telemetry:
    logs: { encoding: json }
    metrics:
      readers: [{ pull: { exporter: { prometheus: { host: "${env:MY_POD_IP}", port: {{ include "otel-zernel.port" (dict "root" . "name" "ZERNEL_METRICS_PORT") | quote | replace "\"8888\"" "8888" }} } } } }]
{{- end -}}

{{- define "otel-zernel.exporters" -}}
{{- $exporters := list -}}
{{- if include "otel-zernel.prometheus" . }}{{ $exporters = append $exporters "prometheus" }}{{ end -}}
{{- if .Values.otlp.endpoint }}{{ $exporters = append $exporters "otlp_grpc" }}{{ end -}}
{{- $exporters | toJson -}}
{{- end -}}

{{/* The configuration of the processor kubernetes. The folders of logs are those of a node. */}}
{{- define "otel-zernel.config.kubernetes" -}}
{{- $preset := .Values.presets.kubernetes -}}
{{- if eq .Values.mode "daemonset" }}
{{- if $preset.api }}
api: {}
{{- end }}
{{- if include "otel-zernel.podResources" . }}
pod_resources: {}
{{- end }}
{{- else if eq .Values.mode "gateway" }}
api: { nodes: all }
pod_logs: null
{{- else }}
own_pod: true
pod_logs: null
{{- end }}
{{- with $preset.labels }}
labels: {{ toJson . }}
{{- end }}
{{- with $preset.annotations }}
annotations: {{ toJson . }}
{{- end }}
{{- end -}}

{{- define "otel-zernel.config.watching" -}}
receivers:
{{- if include "otel-zernel.ebpf" . }}
  ebpf: {}
{{- end }}
{{- if include "otel-zernel.nvml" . }}
  nvml: {}
{{- end }}
processors:
  resource:
    # A pod's own host name changes with each restart. The node's name does not.
    attributes:
      - { key: host.name, value: "${env:K8S_NODE_NAME}", action: upsert }
      - { key: k8s.node.name, value: "${env:K8S_NODE_NAME}", action: upsert }
{{- if include "otel-zernel.kubernetes" . }}
  kubernetes: {{ include "otel-zernel.config.kubernetes" . | fromYaml | toJson }}
{{- end }}
{{- if include "otel-zernel.ebpf" . }}
  phases: {}
  percentiles:
    metrics: [zernel.*.latency, zernel.*.sync.wait, zernel.dataloader.wait, zernel.nccl.collective.*duration, zernel.step.duration]
{{- end }}
{{- if include "otel-zernel.prometheus" . }}
exporters:
  prometheus: { endpoint: "${env:MY_POD_IP}:{{ include "otel-zernel.port" (dict "root" . "name" "ZERNEL_PAGE_PORT") }}" }
{{- end }}
{{- end -}}

{{- define "otel-zernel.config.daemonset" -}}
{{ include "otel-zernel.config.watching" . }}
service:
  pipelines:
    training:
      receivers: [{{ if include "otel-zernel.ebpf" . }}ebpf, {{ end }}{{ if include "otel-zernel.nvml" . }}nvml{{ end }}]
      processors: [resource
        {{- if include "otel-zernel.kubernetes" . }}, kubernetes{{ end }}
        {{- if include "otel-zernel.ebpf" . }}, phases, percentiles{{ end }}]
      exporters: {{ include "otel-zernel.exporters" . }}
{{- end -}}

{{- define "otel-zernel.config.sidecar" -}}
{{- $config := include "otel-zernel.config.watching" . | fromYaml -}}
{{- $_ := set $config "receivers" (merge (dict "otlp" (dict "protocols" (dict "grpc" (dict "endpoint" (printf "localhost:%s" (include "otel-zernel.port" (dict "root" . "name" "ZERNEL_OTLP_GRPC_PORT")))) "http" (dict "endpoint" (printf "localhost:%s" (include "otel-zernel.port" (dict "root" . "name" "ZERNEL_OTLP_HTTP_PORT"))))))) ($config.receivers | default dict)) -}}
{{- $names := list "otlp" -}}
{{- if include "otel-zernel.ebpf" . }}{{ $names = append $names "ebpf" }}{{ end -}}
{{- if include "otel-zernel.nvml" . }}{{ $names = append $names "nvml" }}{{ end -}}
{{- $_ := set $config.processors.resource "detectors" (list "env") -}}
{{- $_ := set $config.processors.resource "override" false -}}
{{- $processors := list "resource" -}}
{{- if include "otel-zernel.kubernetes" . }}{{ $processors = append $processors "kubernetes" }}{{ end -}}
{{- if include "otel-zernel.ebpf" . }}{{ $processors = concat $processors (list "phases" "percentiles") }}{{ end -}}
{{- $exporters := include "otel-zernel.exporters" . | fromJsonArray -}}
{{- $training := dict "receivers" $names "processors" $processors "exporters" $exporters -}}
{{- $_ := set $config "service" (dict "pipelines" (dict "training" $training)) -}}
{{- toYaml $config -}}
{{- end -}}

{{- define "otel-zernel.config.gateway" -}}
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: "${env:MY_POD_IP}:4317"
        # Clients connect again now and then, so that new pods get their share.
        keepalive: { server_parameters: { max_connection_age: 5m, max_connection_age_grace: 10s } }
      http: { endpoint: "${env:MY_POD_IP}:4318" }
processors:
  memory_limiter: { check_interval: 1s, limit_percentage: 80, spike_limit_percentage: 20 }
{{- if include "otel-zernel.kubernetes" . }}
  kubernetes: {{ include "otel-zernel.config.kubernetes" . | fromYaml | toJson }}
{{- end }}
{{- if include "otel-zernel.prometheus" . }}
exporters:
  prometheus: { endpoint: "${env:MY_POD_IP}:9091" }
{{- end }}
service:
  pipelines:
    gateway:
      receivers: [otlp]
      processors: [memory_limiter{{ if include "otel-zernel.kubernetes" . }}, kubernetes{{ end }}]
      exporters: {{ include "otel-zernel.exporters" . }}
{{- end -}}
