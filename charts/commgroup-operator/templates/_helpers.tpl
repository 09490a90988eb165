{{- /* commgroup.image: takes the list of the root and an image's values; a digest wins over a tag. */ -}}
{{- define "commgroup.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{- $registry := $image.registry | default $root.Values.global.imageRegistry -}}
{{- with $registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end }}
