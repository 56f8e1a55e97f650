{{- /*
The StatefulSet, the headless Service, the PodDisruptionBudget and the autoscaler of a
component. StatefulSets, because each pod keeps a journal of charges that Redis does not
have yet, and its successor must find it. Needs root, component and its values.
*/}}
{{- define "llmguard.set" -}}
{{- $root := .root -}}
{{- $name := printf "%s-%s" (include "llmguard.fullname" $root) .component -}}
{{- $scheme := ternary "HTTPS" "HTTP" (ne $root.Values.tls.secretName "") -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "llmguard.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  serviceName: {{ $name }}
  {{- if not .values.autoscaling.enabled }}
  replicas: {{ .values.replicas }}
  {{- end }}
  podManagementPolicy: Parallel
  selector:
    matchLabels:
      {{- include "llmguard.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
  template:
    metadata:
      labels:
        {{- include "llmguard.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
        {{- with $root.Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        # A changed configuration rolls the pods.
        checksum/config: {{ $root.Values.config | sha256sum }}
        {{- with $root.Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "llmguard.fullname" $root }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      {{- with .values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "llmguard.selector" $root | nindent 14 }}
              app.kubernetes.io/component: {{ .component }}
      containers:
        - name: llmguard
          image: {{ include "llmguard.image" $root | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: [{{ .component }}, --config, /etc/llmguard/llmguard.yaml]
          ports:
            {{- if eq .component "serve" }}
            - {name: http, containerPort: {{ $root.Values.ports.http }}}
            {{- end }}
            - {name: admin, containerPort: {{ $root.Values.ports.admin }}}
          envFrom:
            - secretRef: {name: {{ required "secretName names the Secret with the variables of config" $root.Values.secretName }}}
          {{- with $root.Values.extraEnv }}
          env:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          # Readiness: whether the process should get calls. It fails first when the process
          # shuts down.
          readinessProbe:
            httpGet: {path: /readyz, port: admin, scheme: {{ $scheme }}}
            periodSeconds: 2
            timeoutSeconds: 2
            failureThreshold: 2
          # Liveness: only whether the process runs. A failure of Redis must not restart it,
          # because that would lose the calls in flight.
          livenessProbe:
            httpGet: {path: /healthz, port: admin, scheme: {{ $scheme }}}
            periodSeconds: 10
            timeoutSeconds: 2
            failureThreshold: 6
          startupProbe:
            httpGet: {path: /healthz, port: admin, scheme: {{ $scheme }}}
            periodSeconds: 1
            failureThreshold: 60
          volumeMounts:
            - {name: config, mountPath: /etc/llmguard, readOnly: true}
            - {name: journal, mountPath: /var/lib/llmguard}
            - {name: tmp, mountPath: /tmp}
            {{- if $root.Values.tls.secretName }}
            - {name: tls, mountPath: /etc/llmguard-tls, readOnly: true}
            {{- end }}
            {{- with $root.Values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: config
          configMap: {name: {{ include "llmguard.fullname" $root }}-config}
        - name: tmp
          emptyDir: {sizeLimit: {{ $root.Values.tmp.sizeLimit }}}
        {{- if $root.Values.tls.secretName }}
        - name: tls
          secret: {secretName: {{ $root.Values.tls.secretName }}}
        {{- end }}
        {{- with $root.Values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumeClaimTemplates:
    - metadata: {name: journal}
      spec:
        accessModes: [ReadWriteOnce]
        {{- with $root.Values.journal.storageClassName }}
        storageClassName: {{ . }}
        {{- end }}
        resources: {requests: {storage: {{ $root.Values.journal.size }}}}
---
# DNS names of the pods, for Prometheus only.
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "llmguard.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    llmguard.dev/metrics: "true"
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "llmguard.selector" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  ports:
    - {name: admin, port: {{ $root.Values.ports.admin }}, targetPort: admin}
{{- if .values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "llmguard.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  maxUnavailable: {{ .values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "llmguard.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- if .values.autoscaling.enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "llmguard.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: {{ $name }}}
  minReplicas: {{ .values.autoscaling.minReplicas }}
  maxReplicas: {{ .values.autoscaling.maxReplicas }}
  metrics:
    {{- if eq .component "worker" }}
    - type: External
      external:
        metric: {name: {{ .values.autoscaling.metric }}}
        target: {type: Value, value: {{ .values.autoscaling.age | quote }}}
    {{- else }}
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: {{ .values.autoscaling.cpu }}}}
    {{- end }}
  behavior:
    {{- if eq .component "worker" }}
    scaleUp:
      stabilizationWindowSeconds: 60
      policies: [{type: Pods, value: 2, periodSeconds: 60}]
    {{- end }}
    scaleDown:
      stabilizationWindowSeconds: 600
      policies: [{type: Pods, value: 1, periodSeconds: 120}]
{{- end }}
{{- end }}
