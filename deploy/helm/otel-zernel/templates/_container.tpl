{{/* The ports of the mode, merged with the user's, without those that are off: a mapping of name to port, as YAML. */}}
{{- define "otel-zernel.ports" -}}
{{- $ports := dict "metrics" (dict "containerPort" 8888) -}}
{{- if include "otel-zernel.prometheus" . }}{{ $_ := set $ports "prometheus" (dict "containerPort" 9091) }}{{ end -}}
{{- if eq .Values.mode "gateway" -}}
{{- $_ := set $ports "otlp" (dict "containerPort" 4317 "appProtocol" "grpc") -}}
{{- $_ := set $ports "otlp-http" (dict "containerPort" 4318 "appProtocol" "http") -}}
{{- end -}}
{{- include "otel-zernel.merge" (dict "base" $ports "over" .Values.ports) -}}
{{- range $name, $port := $ports -}}
{{- if eq (get $port "enabled" | toString) "false" }}{{ $_ := unset $ports $name }}{{ end -}}
{{- end -}}
{{- toYaml $ports -}}
{{- end -}}

{{/* Services and probes of a job name its own ports, so those of a sidecar have other names. */}}
{{- define "otel-zernel.portName" -}}
{{- ternary (printf "zernel-%s" (.name | replace "prometheus" "page") | trunc 15 | trimSuffix "-") .name (eq .root.Values.mode "sidecar") -}}
{{- end -}}

{{- define "otel-zernel.containerPorts" -}}
- { name: {{ include "otel-zernel.portName" (dict "root" . "name" "health") }}, containerPort: 13133 }
{{- range $name, $port := include "otel-zernel.ports" . | fromYaml }}
- name: {{ include "otel-zernel.portName" (dict "root" $ "name" $name) }}
  containerPort: {{ int $port.containerPort }}
  protocol: {{ $port.protocol | default "TCP" }}
{{- with $port.hostPort }}
  hostPort: {{ int . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "otel-zernel.env" -}}
{{- $fields := dict "MY_POD_IP" "status.podIP" "K8S_NODE_NAME" "spec.nodeName" "K8S_NAMESPACE" "metadata.namespace" -}}
{{- $fields = merge $fields (dict "K8S_POD_NAME" "metadata.name" "K8S_POD_UID" "metadata.uid") -}}
{{- range $name, $path := $fields }}
- name: {{ $name }}
  valueFrom: { fieldRef: { apiVersion: v1, fieldPath: {{ $path }} } }
{{- end }}
- name: ZERNEL_HOST_NAME
  value: $(K8S_NODE_NAME)
{{- if eq .Values.mode "sidecar" }}
{{- if not (include "otel-zernel.readsPods" (dict "root" . "from" "own_pod")) }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name=$(K8S_NAMESPACE),k8s.pod.name=$(K8S_POD_NAME),k8s.pod.uid=$(K8S_POD_UID)
{{- end }}
- name: OTEL_CONFIG
  value: {{ include "otel-zernel.config" . | quote }}
{{- end }}
{{- if include "otel-zernel.uses" (dict "root" . "type" "nvml") }}
- { name: NVIDIA_VISIBLE_DEVICES, value: all }
- { name: NVIDIA_DRIVER_CAPABILITIES, value: utility }
{{- end }}
{{- with .Values.extraEnvs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* From measured resident memory, see docs/benchmarks.md: 65 MiB idle, 90 MB with eBPF beside two jobs, 448 MB for a gateway. */}}
{{- define "otel-zernel.resources" -}}
{{- if .Values.resources -}}
{{- toYaml .Values.resources -}}
{{- else if eq .Values.mode "gateway" -}}
requests: { cpu: 500m, memory: 512Mi }
limits: { memory: 2Gi }
{{- else if eq .Values.mode "sidecar" -}}
requests: { cpu: 50m, memory: 128Mi }
limits: { memory: 512Mi }
{{- else -}}
requests: { cpu: 100m, memory: 192Mi }
limits: { memory: 1Gi }
{{- end -}}
{{- end -}}

{{- define "otel-zernel.container" -}}
{{- $isSidecar := eq .Values.mode "sidecar" -}}
name: otel-zernel
image: {{ include "otel-zernel.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - --config={{ ternary "env:OTEL_CONFIG" "/etc/otel-zernel/config.yaml" $isSidecar }}
{{- with .Values.extraArgs }}
{{ toYaml . | indent 2 }}
{{- end }}
env: {{- include "otel-zernel.env" . | trim | nindent 2 }}
{{- with .Values.extraEnvsFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
ports: {{- include "otel-zernel.containerPorts" . | trim | nindent 2 }}
{{- $health := include "otel-zernel.portName" (dict "root" . "name" "health") }}
startupProbe:
  httpGet: { path: /, port: {{ $health }} }
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /, port: {{ $health }} }
  periodSeconds: 15
  timeoutSeconds: 5
{{- if not $isSidecar }}
readinessProbe:
  httpGet: { path: /, port: health }
  periodSeconds: 5
  timeoutSeconds: 5
lifecycle:
  preStop: { sleep: { seconds: {{ .Values.preStopSleepSeconds }} } }
{{- end }}
resources: {{- include "otel-zernel.resources" . | nindent 2 }}
securityContext: {{- include "otel-zernel.securityContext" . | nindent 2 }}
volumeMounts:
{{- if not $isSidecar }}
  - { name: config, mountPath: /etc/otel-zernel, readOnly: true }
{{- end }}
{{- if .Values.statefulset.enabled }}
  - { name: queue, mountPath: /var/lib/otel-zernel }
{{- end }}
  - { name: tmp{{ if $isSidecar }}-otel-zernel{{ end }}, mountPath: /tmp }
{{- if $isSidecar }}
  # Kubernetes mounts the token of the job into each container without this mount. The sidecar needs none.
  - { name: no-token-otel-zernel, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true }
{{- end }}
{{- with include "otel-zernel.podSourceMounts" . | trim }}
{{ . | indent 2 }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- end -}}
