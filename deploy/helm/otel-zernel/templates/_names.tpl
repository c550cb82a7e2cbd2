{{- define "otel-zernel.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "otel-zernel.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "otel-zernel.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "otel-zernel.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* A name of a service starts with a letter. That of a release may be a number. */}}
{{- define "otel-zernel.serviceName" -}}
{{- regexReplaceAll "^([0-9])" (include "otel-zernel.fullname" .) "z-${1}" -}}
{{- end -}}

{{/* For objects without a namespace: releases of several namespaces may have one name. No namespace has a dot in its name. */}}
{{- define "otel-zernel.clusterName" -}}
{{- printf "%s.%s" .Release.Namespace (include "otel-zernel.fullname" .) -}}
{{- end -}}

{{- define "otel-zernel.selector" -}}
app.kubernetes.io/name: {{ include "otel-zernel.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "otel-zernel.labels" -}}
{{ include "otel-zernel.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/component: {{ .Values.mode }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "otel-zernel.metadata" -}}
name: {{ include "otel-zernel.fullname" . }}
namespace: {{ .Release.Namespace }}
labels: {{- include "otel-zernel.labels" . | nindent 2 }}
{{- end -}}

{{- define "otel-zernel.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "otel-zernel.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "otel-zernel.image" -}}
{{- $image := .Values.image -}}
{{- required "image.repository is required: the repository to which you pushed the image" $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}
