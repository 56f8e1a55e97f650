package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/redistest"
)

// serviceMonitor has the fields that we use of the Prometheus operator's type.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port          string         `json:"port"`
			Path          string         `json:"path"`
			Interval      string         `json:"interval"`
			Scheme        string         `json:"scheme"`
			TLSConfig     map[string]any `json:"tlsConfig"`
			Authorization struct {
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
		} `json:"endpoints"`
	} `json:"spec"`
}

const chart = "helm/llmguard"

// render renders the chart as release llmguard in namespace llmguard, with values on top of the
// chart's. It renders our templates like Helm: Go templates with the functions of Sprig and
// Helm. Helm's engine would add 200 packages; TestChartIsHelms compares with the real program
// where it is installed.
func render(t *testing.T, values string) ([]manifest, error) {
	t.Helper()
	var info, given map[string]any
	vals := chartValues(t)
	for text, into := range map[string]*map[string]any{read(t, chart+"/Chart.yaml"): &info, values: &given} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	overlay(vals, given)
	data := map[string]any{
		"Values":  vals,
		"Chart":   map[string]any{"Name": info["name"], "Version": info["version"], "AppVersion": info["appVersion"]},
		"Release": map[string]any{"Name": "llmguard", "Namespace": "llmguard", "Service": "Helm"},
	}
	root := template.New("chart").Option("missingkey=error")
	root.Funcs(functions(root))
	files, err := filepath.Glob(chart + "/templates/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no templates: %v", err)
	}
	for _, file := range files {
		if _, err := root.New(file).Parse(read(t, file)); err != nil {
			t.Fatal(err)
		}
	}
	var all []manifest
	for _, file := range files {
		var out bytes.Buffer
		switch {
		case strings.HasPrefix(filepath.Base(file), "_"):
			continue
		default:
			if err := root.ExecuteTemplate(&out, file, data); err != nil {
				return nil, err
			}
		}
		if filepath.Ext(file) == ".yaml" {
			all = append(all, documents(t, file, out.Bytes())...)
		}
	}
	return all, nil
}

// documents decodes the output of a template.
func documents(t *testing.T, file string, text []byte) (all []manifest) {
	t.Helper()
	for _, doc := range bytes.Split(append([]byte("\n"), text...), []byte("\n---\n")) {
		if len(bytes.TrimSpace(regexp.MustCompile(`(?m)^#.*$`).ReplaceAll(doc, nil))) == 0 {
			continue
		}
		object, err := decode(doc)
		if err != nil {
			t.Errorf("%s: %v\n%s", file, err, doc)
			continue
		}
		all = append(all, manifest{file, object})
	}
	return all
}

// functions returns Helm's template functions: Sprig's, except those that read the environment,
// and Helm's own.
func functions(root *template.Template) template.FuncMap {
	f := sprig.TxtFuncMap()
	delete(f, "env")
	delete(f, "expandenv")
	maps.Copy(f, template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out strings.Builder
			err := root.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"required": func(why string, v any) (any, error) {
			if v == nil || v == "" {
				return nil, errors.New(why)
			}
			return v, nil
		},
		"toYaml": func(v any) (string, error) {
			text, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"toJson": func(v any) (string, error) {
			text, err := json.Marshal(v)
			return string(text), err
		},
	})
	return f
}

// overlay applies values on top of others: maps are merged, everything else is replaced.
func overlay(under, over map[string]any) {
	for name, v := range over {
		a, isMap := under[name].(map[string]any)
		b, alsoMap := v.(map[string]any)
		if isMap && alsoMap {
			overlay(a, b)
			continue
		}
		under[name] = v
	}
}

func chartValues(t *testing.T) map[string]any {
	t.Helper()
	var vals map[string]any
	if err := yaml.Unmarshal([]byte(read(t, chart+"/values.yaml")), &vals); err != nil {
		t.Fatal(err)
	}
	return vals
}

func rendered(t *testing.T, values string) []manifest {
	t.Helper()
	all, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// everything enables all options.
const everything = `
image: {digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
imagePullSecrets: [{name: registry}]
tls: {secretName: llmguard-tls}
service: {annotations: {a: b}}
serviceAccount: {annotations: {a: b}}
podLabels: {team: a}
extraEnv: [{name: A, value: b}]
extraVolumes: [{name: files, persistentVolumeClaim: {claimName: files}}]
extraVolumeMounts: [{name: files, mountPath: /var/lib/llmguard-files}]
serve: {autoscaling: {enabled: true}, nodeSelector: {a: b}, tolerations: [{operator: Exists}], affinity: {nodeAffinity: {}}}
worker: {autoscaling: {enabled: true}, nodeSelector: {a: b}, tolerations: [{operator: Exists}], affinity: {nodeAffinity: {}}}
journal: {storageClassName: fast}
serviceMonitor: {enabled: true, labels: {release: prometheus}, tokenKey: METRICS_TOKEN, tlsConfig: {serverName: llmguard.llmguard.svc}}
`

// chartConfig reads the configuration that the pods mount, as they do, and returns the variables
// that it uses.
func chartConfig(t *testing.T, all []manifest) (cfg *config.Config, asked map[string]bool) {
	t.Helper()
	asked = map[string]bool{}
	maps := find(all, func(c *corev1.ConfigMap) string { return c.Name })
	env := map[string]string{
		"OPENAI_API_KEY": "sk-test", "REDIS_URL": "redis://redis:6379/0",
		"LLMGUARD_KEY_HASH": keys.Hash(keys.Pepper{}, keys.New(keys.Live)),
	}
	c := maps["llmguard-config"]
	if c == nil {
		t.Fatal("no configuration is mounted")
	}
	cfg, err := config.Parse("llmguard.yaml", []byte(c.Data["llmguard.yaml"]), func(name string) (string, bool) {
		asked[name] = true
		v, ok := env[name]
		return v, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg, asked
}

// TestChartRendersWhatIsSafe: with the default values and with everything enabled, all objects
// are valid, the pods are safe, and ports, names and the configuration match.
func TestChartRendersWhatIsSafe(t *testing.T) {
	for values, objects := range map[string]int{"": 12, everything: 15} {
		all := rendered(t, values)
		if len(all) != objects {
			t.Errorf("got %d objects, want %d", len(all), objects)
		}
		cfg, _ := chartConfig(t, all)
		podsAreSafe(t, cfg, all)
		fitTogether(t, cfg, all)
		opensLittle(t, find(all, func(p *networkingv1.NetworkPolicy) string { return p.Name }))
		for name, s := range sets(all) {
			if (s.Spec.Replicas == nil) != (values != "") {
				t.Errorf("%s: got replicas %v: either they are set or an autoscaler sets them", name, s.Spec.Replicas)
			}
		}
	}
}

// TestChartNeedsItsValues: without a configuration or a secret the chart does not render, and
// the error names the missing value. Another release name changes all names.
func TestChartNeedsItsValues(t *testing.T) {
	for values, want := range map[string]string{`config: ""`: "--set-file config", `secretName: ""`: "secretName"} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %s", values, err, want)
		}
	}
	for _, m := range rendered(t, "fullnameOverride: guard") {
		var meta struct {
			Metadata struct{ Name string }
		}
		text, err := json.Marshal(m.object)
		if err == nil {
			err = json.Unmarshal(text, &meta)
		}
		if name := meta.Metadata.Name; err != nil || name != "guard" && !strings.HasPrefix(name, "guard-") {
			t.Errorf("%s: got the name %q, %v", m.file, name, err)
		}
	}
}

// TestChartMonitors: Prometheus finds both components through their services, over TLS if
// enabled.
func TestChartMonitors(t *testing.T) {
	all := rendered(t, everything)
	for _, m := range find(all, func(m *serviceMonitor) string { return m.Name }) {
		e := m.Spec.Endpoints[0]
		if e.Scheme != "https" || e.Path != "/metrics" || e.Authorization.Credentials.Name != "llmguard" || len(e.TLSConfig) == 0 {
			t.Errorf("got the endpoint %+v", e)
		}
		found := 0
		for name, s := range find(all, func(s *corev1.Service) string { return s.Name }) {
			selected := true
			for k, v := range m.Spec.Selector.MatchLabels {
				selected = selected && s.Labels[k] == v
			}
			has := slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == e.Port })
			if selected != has {
				t.Errorf("service %s: selected %v, has the port %v", name, selected, has)
			}
			if selected {
				found++
			}
		}
		if found != 2 {
			t.Errorf("%d services are monitored, want proxies and workers", found)
		}
		return
	}
	t.Error("there is no ServiceMonitor")
}

// TestSecretHasWhatIsAsked: the Secret that docs/kubernetes.md creates has the variables of the chart's
// configuration.
func TestSecretHasWhatIsAsked(t *testing.T) {
	_, asked := chartConfig(t, rendered(t, ""))
	made := map[string]bool{}
	for _, m := range regexp.MustCompile(`--from-literal=(\w+)=`).FindAllStringSubmatch(read(t, "../docs/kubernetes.md"), -1) {
		made[m[1]] = true
	}
	if !maps.Equal(made, asked) {
		t.Errorf("the Secret has %v, and the configuration asks for %v", made, asked)
	}
}

// TestChartTLS: with a certificate, probes use HTTPS, and the files are where docs/kubernetes.md tells
// both listeners to find them.
func TestChartTLS(t *testing.T) {
	page := read(t, "../docs/kubernetes.md")
	for name, s := range sets(rendered(t, everything)) {
		c := s.Spec.Template.Spec.Containers[0]
		for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
			if p.HTTPGet.Scheme != corev1.URISchemeHTTPS {
				t.Errorf("%s: a probe uses %s", name, p.HTTPGet.Scheme)
			}
		}
		i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "tls" })
		if i < 0 || !c.VolumeMounts[i].ReadOnly {
			t.Fatalf("%s: got the mounts %+v, want the certificate, read-only", name, c.VolumeMounts)
		}
		for _, file := range []string{"tls.crt", "tls.key"} {
			if n := strings.Count(page, c.VolumeMounts[i].MountPath+"/"+file); n != 2 {
				t.Errorf("docs/kubernetes.md names %s %d times, want it for both listeners", file, n)
			}
		}
	}
}

// TestChartIsDocumented: docs/kubernetes.md lists every value and no others.
func TestChartIsDocumented(t *testing.T) {
	want := map[string]bool{}
	for name, v := range chartValues(t) {
		m, ok := v.(map[string]any)
		if !ok || len(m) == 0 || name == "podAnnotations" {
			want[name] = true
			continue
		}
		for inner := range m {
			want[name+"."+inner] = true
		}
	}
	got := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(read(t, "../docs/kubernetes.md"), -1) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			got[m[1]] = true
		}
	}
	for name := range want {
		if !got[name] {
			t.Errorf("docs/kubernetes.md does not list %s", name)
		}
	}
	for name := range got {
		if !want[name] {
			t.Errorf("docs/kubernetes.md lists %s, which the chart does not have", name)
		}
	}
}

// TestChartIsHelms: where Helm is installed, it renders the same objects and reports no
// problem.
func TestChartIsHelms(t *testing.T) {
	helm, err := exec.LookPath("helm")
	if err != nil {
		t.Log("helm is not installed, so its own rendering is not compared")
		return
	}
	for _, values := range []string{"", everything} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := redistest.Command(t, helm, "template", "llmguard", chart, "--namespace", "llmguard", "-f", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		theirs, ours := documents(t, "helm template", out), rendered(t, values)
		same := func(m manifest) bool {
			return slices.ContainsFunc(theirs, func(o manifest) bool { return reflect.DeepEqual(o.object, m.object) })
		}
		for _, m := range ours {
			if !same(m) {
				t.Errorf("%s: Helm renders another object", m.file)
			}
		}
		if len(theirs) != len(ours) {
			t.Errorf("Helm renders %d objects, want %d", len(theirs), len(ours))
		}
		if out, err := redistest.Command(t, helm, "lint", "--strict", chart, "-f", file).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}
