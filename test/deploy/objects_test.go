package deploy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/llmguard/llmguard/config"
)

// manifest is one object of the chart, decoded into its own type.
type manifest struct {
	file   string
	object any
}

// kinds are all kinds that we ship; a file with a new one fails until it is added here.
var kinds = map[string]func() any{
	"v1 Namespace":                            func() any { return &corev1.Namespace{} },
	"v1 ServiceAccount":                       func() any { return &corev1.ServiceAccount{} },
	"v1 Secret":                               func() any { return &corev1.Secret{} },
	"v1 ConfigMap":                            func() any { return &corev1.ConfigMap{} },
	"v1 Service":                              func() any { return &corev1.Service{} },
	"apps/v1 StatefulSet":                     func() any { return &appsv1.StatefulSet{} },
	"policy/v1 PodDisruptionBudget":           func() any { return &policyv1.PodDisruptionBudget{} },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() any { return &autoscalingv2.HorizontalPodAutoscaler{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return &networkingv1.NetworkPolicy{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return &serviceMonitor{} },
}

// decode is strict: an unknown or repeated field, or a value of the wrong type, fails.
func decode(doc []byte) (any, error) {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(doc, &head); err != nil {
		return nil, err
	}
	empty := kinds[head.APIVersion+" "+head.Kind]
	if empty == nil {
		return nil, fmt.Errorf("unexpected %s %s", head.APIVersion, head.Kind)
	}
	object := empty()
	return object, yaml.UnmarshalStrict(doc, object)
}

func find[T any](all []manifest, name func(T) string) map[string]T {
	found := map[string]T{}
	for _, m := range all {
		if o, ok := m.object.(T); ok {
			found[name(o)] = o
		}
	}
	return found
}

func sets(all []manifest) map[string]*appsv1.StatefulSet {
	return find(all, func(s *appsv1.StatefulSet) string { return s.Name })
}

func TestMisspelledFieldFails(t *testing.T) {
	_, err := decode([]byte("apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {prots: []}\n"))
	if err == nil || !strings.Contains(err.Error(), "prots") {
		t.Errorf("a misspelled field passes: %v", err)
	}
}

// podsAreSafe checks that the pods meet the restricted profile, and can shut down in order.
func podsAreSafe(t *testing.T, cfg *config.Config, all []manifest) {
	t.Helper()
	needs := map[string]time.Duration{
		"llmguard-serve":  cfg.Timeouts.Drain + cfg.Timeouts.Shutdown + 13*time.Second,
		"llmguard-worker": cfg.Queue.Shutdown + 13*time.Second,
	}
	found := sets(all)
	for name, need := range needs {
		s := found[name]
		if s == nil {
			t.Fatalf("%s is missing", name)
		}
		pod, c := s.Spec.Template.Spec, s.Spec.Template.Spec.Containers[0]
		if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < need {
			t.Errorf("%s is killed after %s, but may take %s", name, grace, need)
		}
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s carries a token for the cluster", name)
		}
		p := pod.SecurityContext
		if !*p.RunAsNonRoot || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || *p.FSGroup != 65532 {
			t.Errorf("%s: %+v", name, p)
		}
		x := c.SecurityContext
		if *x.AllowPrivilegeEscalation || !*x.ReadOnlyRootFilesystem || !slices.Equal(x.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: %+v", name, x)
		}
		if c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/healthz" || c.StartupProbe == nil {
			t.Errorf("%s: probes", name)
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() || s.Spec.Replicas != nil && *s.Spec.Replicas < 2 {
			t.Errorf("%s: resources or replicas", name)
		}
	}
}

// fitTogether checks references between objects, and to the configuration.
func fitTogether(t *testing.T, cfg *config.Config, all []manifest) {
	t.Helper()
	found := sets(all)
	for name, s := range found {
		c := s.Spec.Template.Spec.Containers[0]
		ports := map[string]int32{}
		for _, p := range c.Ports {
			ports[p.Name] = p.ContainerPort
		}
		if !strings.HasSuffix(cfg.Admin.Listen, fmt.Sprint(":", ports["admin"])) {
			t.Errorf("%s: probes at %d, listening on %s", name, ports["admin"], cfg.Admin.Listen)
		}
		if name == "llmguard-serve" && !strings.HasSuffix(cfg.Listen, fmt.Sprint(":", ports["http"])) {
			t.Errorf("%s: calls at %d, listening on %s", name, ports["http"], cfg.Listen)
		}
		if c.EnvFrom[0].SecretRef.Name != "llmguard" || s.Spec.ServiceName != name {
			t.Errorf("%s: secret %s, service %s", name, c.EnvFrom[0].SecretRef.Name, s.Spec.ServiceName)
		}
		journal := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == s.Spec.VolumeClaimTemplates[0].Name && strings.HasPrefix(cfg.Store.JournalDir, m.MountPath+"/")
		})
		if !journal {
			t.Errorf("%s: the journal %s is not on its claim", name, cfg.Store.JournalDir)
		}
	}
	covers := func(what, name string, selector, labels map[string]string) {
		for k, v := range selector {
			if labels[k] != v {
				t.Errorf("%s %s selects %s=%s, which no pod has", what, name, k, v)
			}
		}
	}
	for name, s := range find(all, func(s *corev1.Service) string { return s.Name }) {
		covers("service", name, s.Spec.Selector, found["llmguard-"+s.Spec.Selector["app.kubernetes.io/component"]].Spec.Template.Labels)
	}
	for name, p := range find(all, func(p *policyv1.PodDisruptionBudget) string { return p.Name }) {
		covers("budget", name, p.Spec.Selector.MatchLabels, found[name].Spec.Template.Labels)
	}
	for name, h := range find(all, func(h *autoscalingv2.HorizontalPodAutoscaler) string { return h.Name }) {
		if found[h.Spec.ScaleTargetRef.Name] == nil || *h.Spec.MinReplicas < 2 {
			t.Errorf("autoscaler %s: target %s", name, h.Spec.ScaleTargetRef.Name)
		}
		for _, m := range h.Spec.Metrics {
			if m.External != nil && !strings.Contains(read(t, chart+"/prometheus-adapter.yaml"), "name: {as: "+m.External.Metric.Name+"}") {
				t.Errorf("autoscaler %s: no rule makes %s", name, m.External.Metric.Name)
			}
		}
	}
}

// opensLittle checks that no policy allows access to a cloud's metadata service, or from
// everywhere.
func opensLittle(t *testing.T, policies map[string]*networkingv1.NetworkPolicy) {
	t.Helper()
	for _, rule := range policies["llmguard-out"].Spec.Egress {
		for _, to := range rule.To {
			if to.IPBlock != nil && to.IPBlock.CIDR == "0.0.0.0/0" && !slices.Contains(to.IPBlock.Except, "169.254.0.0/16") {
				t.Error("the metadata service can be reached")
			}
		}
	}
	for name, p := range policies {
		for _, rule := range p.Spec.Ingress {
			if len(rule.From) == 0 {
				t.Errorf("%s lets everybody in", name)
			}
		}
	}
}
