{{/* The template of a pod, with `metadata` and `spec`. */}}
{{- define "otel-zernel.pod" -}}
metadata:
  labels: {{- include "otel-zernel.labels" . | nindent 4 }}
{{- with .Values.podLabels }}
{{ toYaml . | indent 4 }}
{{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: otel-zernel
{{- if and .Values.configMap.create .Values.enableConfigChecksumAnnotation }}
    checksum/config: {{ include "otel-zernel.config" . | sha256sum }}
{{- end }}
{{- with .Values.podAnnotations }}
{{ toYaml . | indent 4 }}
{{- end }}
spec:
{{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
{{- end }}
  serviceAccountName: {{ include "otel-zernel.serviceAccountName" . }}
  automountServiceAccountToken: {{ include "otel-zernel.needsRole" . | default "false" }}
  securityContext: {{- include "otel-zernel.podSecurityContext" . | nindent 4 }}
  # The sleep before SIGTERM, the time for the queues, 5 s after which a hanging process ends itself, and some room.
  terminationGracePeriodSeconds: {{ add .Values.preStopSleepSeconds .Values.shutdownTimeoutSeconds 10 }}
{{- if include "otel-zernel.hostPID" . }}
  hostPID: true
{{- end }}
{{- if .Values.hostNetwork }}
  hostNetwork: true
{{- end }}
  dnsPolicy: {{ .Values.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "ClusterFirst" .Values.hostNetwork) }}
{{- with .Values.initContainers }}
  initContainers: {{- toYaml . | nindent 4 }}
{{- end }}
  containers:
    - {{- include "otel-zernel.container" . | nindent 6 }}
{{- with .Values.extraContainers }}
{{ toYaml . | indent 4 }}
{{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ .Values.configMap.existingName | default (include "otel-zernel.fullname" .) }}
    - { name: tmp, emptyDir: {} }
{{- with include "otel-zernel.podSourceVolumes" . | trim }}
{{ . | indent 4 }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . | indent 4 }}
{{- end }}
{{- include "otel-zernel.scheduling" . | indent 2 }}
{{- end -}}

{{- define "otel-zernel.scheduling" -}}
{{- $tolerations := .Values.tolerations -}}
{{- if and (eq .Values.mode "daemonset") (not $tolerations) -}}
{{- $tolerations = list (dict "operator" "Exists" "effect" "NoSchedule") -}}
{{- end -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- end -}}
