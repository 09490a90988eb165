{{- /* commgroup.image: the reference of an image; takes the list of the root and the image's values. */ -}}
{{- define "commgroup.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{- with $image.registry | default $root.Values.global.imageRegistry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end }}

{{- /* commgroup.labels: takes the list of the root and app.kubernetes.io/name. */ -}}
{{- define "commgroup.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/part-of: commgroup-operator
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.global.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* commgroup.sampleNamespace: where the sample goes. */ -}}
{{- define "commgroup.sampleNamespace" -}}
{{- .Values.sample.namespace | default (first (append .Values.namespaces "default")) -}}
{{- end }}

{{- /* commgroup.sampleThere: not empty where the cluster has a CommGroup of the sample's name. lookup fails where the CRD is not served. */ -}}
{{- define "commgroup.sampleThere" -}}
{{- if .Capabilities.APIVersions.Has "rcclx.io/v1alpha1/CommGroup" -}}
{{- if lookup "rcclx.io/v1alpha1" "CommGroup" (include "commgroup.sampleNamespace" .) .Values.sample.name }}yes{{ end -}}
{{- end -}}
{{- end }}

{{- /* commgroup.gpuNodes: members by the label of AMD's node labeller. */ -}}
{{- define "commgroup.gpuNodes" -}}
nodeSelector:
  matchLabels:
    feature.node.kubernetes.io/amd-gpu: "true"
{{- end }}

{{- /* commgroup.scrape: what ServiceMonitor and PodMonitor share of an endpoint; takes the list of the root and its values. */ -}}
{{- define "commgroup.scrape" -}}
{{- $root := index . 0 }}{{ $v := index . 1 -}}
scheme: https
path: /metrics
honorLabels: {{ $v.honorLabels }}
tlsConfig: {{- toYaml $root.Values.metrics.tlsConfig | nindent 2 }}
{{- with $v.interval }}
interval: {{ . }}
{{- end }}
{{- with $v.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with $v.relabelings }}
relabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Rules of NetworkPolicies. */ -}}
{{- define "commgroup.apiServerEgress" -}}
# Name servers.
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
# The API server.
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with .Values.networkPolicy.apiServerCIDRs }}
  to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  {{- end }}
{{- end }}
{{- define "commgroup.metricsIngress" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.metrics.enabled }}
- ports:
    - {port: {{ index . 1 }}, protocol: TCP}
  {{- with $root.Values.networkPolicy.metricsFrom }}
  from: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
