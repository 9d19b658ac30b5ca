{{- define "shadowrun.name" -}}
{{- if contains "shadowrun" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-shadowrun{{ end }}-operator
{{- end }}

{{- define "shadowrun.selector" -}}
app.kubernetes.io/name: shadowrun-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "shadowrun.labels" -}}
{{ include "shadowrun.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The image of one part; call with a list of the root context and the part's name. */ -}}
{{- define "shadowrun.image" -}}
{{- $root := index . 0 }}{{- $image := index $root.Values.image (index . 1) -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end }}
