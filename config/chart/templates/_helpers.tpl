{{- define "remesh.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains "remesh" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-remesh" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* What may not be changed on a Deployment. Argument: dict root, component. */}}
{{- define "remesh.selector" -}}
app.kubernetes.io/name: {{ .root.Values.nameOverride | default "remesh" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "remesh.labels" -}}
{{ include "remesh.selector" . }}
app.kubernetes.io/part-of: remesh
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* Opt-outs that are read on the namespace. */}}
{{- define "remesh.optOut.namespaceLabels" -}}
istio-injection: disabled
istio.io/dataplane-mode: none
config.linkerd.io/admission-webhooks: disabled
kuma.io/sidecar-injection: disabled
appmesh.k8s.aws/sidecarInjectorWebhook: disabled
openservicemesh.io/ignore: "true"
opa-istio-injection: disabled
secrets-injection: disabled
{{- end }}
{{- define "remesh.optOut.namespaceAnnotations" -}}
linkerd.io/inject: disabled
openservicemesh.io/sidecar-injection: disabled
sidecar.opentelemetry.io/inject: "false"
{{- end }}

{{/* Opt-outs that are read on the pod: they hold in a namespace that somebody else made, too. */}}
{{- define "remesh.optOut.podLabels" -}}
sidecar.istio.io/inject: "false"
istio.io/dataplane-mode: none
kuma.io/sidecar-injection: disabled
security.banzaicloud.io/mutate: skip
{{- end }}
{{- define "remesh.optOut.podAnnotations" -}}
linkerd.io/inject: disabled
consul.hashicorp.com/connect-inject: "false"
dapr.io/enabled: "false"
vault.hashicorp.com/agent-inject: "false"
vault.security.banzaicloud.io/mutate: skip
appmesh.k8s.aws/sidecarInjectorWebhook: disabled
openservicemesh.io/sidecar-injection: disabled
sidecar.opentelemetry.io/inject: "false"
{{- end }}

{{- define "remesh.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "remesh.barePods" -}}
{{- if and (eq .Values.mode "repair") (dig "repair" "bare_pods" false .Values.policy) }}true{{ end -}}
{{- end }}

{{/* Namespaces in which alone something may be created, patched or evicted, as JSON; [] means all. */}}
{{- define "remesh.scope" -}}
{{- dig "scope" "namespaces" (list) .Values.policy | toJson -}}
{{- end }}

{{/* Namespaces that are never written to, as JSON: the policy's, and this one. */}}
{{- define "remesh.protected" -}}
{{- $default := list "kube-system" "kube-public" "kube-node-lease" -}}
{{- append (dig "scope" "protected_namespaces" $default .Values.policy) .Release.Namespace | uniq | toJson -}}
{{- end }}

{{- define "remesh.redisSecret" -}}
{{- .Values.redis.existingSecret | default (printf "%s-redis" (include "remesh.fullname" .)) -}}
{{- end }}
{{- define "remesh.flowerSecret" -}}
{{- .Values.flower.existingSecret | default (printf "%s-flower" (include "remesh.fullname" .)) -}}
{{- end }}
{{- define "remesh.signingSecret" -}}
{{- .Values.signingKey.existingSecret | default (printf "%s-signing-key" (include "remesh.fullname" .)) -}}
{{- end }}

{{- define "remesh.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "remesh.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Where Redis and broker are. A variable must stand before those that quote it. */}}
{{- define "remesh.brokerEnv" -}}
- name: REMESH_CLUSTER
  value: {{ .Values.cluster | quote }}
{{- if .Values.redis.enabled }}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ include "remesh.redisSecret" . }}
      key: password
- name: REMESH_REDIS_URL
  value: redis://:$(REDIS_PASSWORD)@{{ include "remesh.fullname" . }}-redis:6379/0
{{- else }}
- name: REMESH_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.externalRedis.existingSecret }}
      key: {{ .Values.externalRedis.key }}
{{- end }}
{{- with .Values.broker.existingSecret }}
- name: REMESH_BROKER_URL
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.broker.key }}
{{- end }}
- name: REMESH_LOG_FORMAT
  value: {{ .Values.logFormat }}
- name: REMESH_LOG_LEVEL
  value: {{ .Values.logLevel }}
{{- end }}

{{- define "remesh.env" -}}
{{ include "remesh.brokerEnv" . }}
- name: REMESH_POLICY
  value: /etc/remesh/policy.toml
{{- if .Values.meshes }}
- name: REMESH_MESHES
  value: /etc/remesh/meshes
{{- end }}
{{- /* Redis may come up after them: wait, for less long than the startup probe does. */}}
- name: REMESH_START_SECONDS
  value: "120"
- name: REMESH_METRICS_HOST
  value: 0.0.0.0
- name: REMESH_METRICS_PORT
  value: {{ .Values.metrics.port | quote }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}

{{/*
Startup: a busy node may take half a minute to start Python and more; until then liveness is not asked.
Liveness: it is stuck. Readiness: it has everything that it needs to work.
*/}}
{{- define "remesh.probes" -}}
startupProbe:
  httpGet:
    path: /livez
    port: metrics
  periodSeconds: 3
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet:
    path: /livez
    port: metrics
  periodSeconds: 15
  timeoutSeconds: 5
  failureThreshold: 4
readinessProbe:
  httpGet:
    path: /readyz
    port: metrics
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end }}

{{/* The end of a pod's spec that watcher and worker share. */}}
{{- define "remesh.volumes" -}}
- name: config
  configMap:
    name: {{ include "remesh.fullname" . }}
    items:
      - key: policy.toml
        path: policy.toml
{{- range $name, $_ := .Values.meshes }}
      - key: {{ $name }}
        path: meshes/{{ $name }}
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- define "remesh.mounts" -}}
- name: config
  mountPath: /etc/remesh
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "remesh.priority" -}}
{{- if .Values.priorityClassName }}
priorityClassName: {{ .Values.priorityClassName }}
{{- else if .Values.priorityClass.create }}
priorityClassName: {{ include "remesh.fullname" . }}
{{- end }}
{{- end }}

{{/* Argument: the values of a component. */}}
{{- define "remesh.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Over nodes and zones as evenly as they allow. Argument: the selector's labels as YAML. */}}
{{- define "remesh.spread" -}}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- $ | nindent 8 }}
  {{- end }}
{{- end }}

{{/* What the schema cannot say. */}}
{{- define "remesh.check" -}}
{{- if and (not .Values.redis.enabled) (not .Values.externalRedis.existingSecret) }}
{{- fail "redis.enabled is false and externalRedis.existingSecret is empty: name a Secret whose key holds the Redis URL" }}
{{- end }}
{{- if and .Values.redis.enabled .Values.externalRedis.existingSecret }}
{{- fail "redis.enabled is true and externalRedis.existingSecret is set: set one of them" }}
{{- end }}
{{- if and .Values.priorityClass.create .Values.priorityClassName }}
{{- fail "priorityClass.create is true and priorityClassName is set: set one of them" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) }}
{{- fail "serviceMonitor.enabled is true and networkPolicy.metricsFrom is empty, so Prometheus would not be let in: name its namespace there" }}
{{- end }}
{{- if and .Values.admissionPolicy.enabled (semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "Kubernetes %s has no ValidatingAdmissionPolicy: upgrade to 1.30, or set admissionPolicy.enabled=false and rely on rights alone" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- if hasKey .Values.policy "mode" }}
{{- fail "policy.mode: set the chart's value mode instead, which grants the rights that go with it" }}
{{- end }}
{{- end }}
