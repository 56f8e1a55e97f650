package config_test

import (
	"testing"

	"github.com/llmguard/llmguard/config"
)

// TestLabelMistakes: every mistake in labels, in the values of keys and in subjects is reported at its
// place with what to write instead.
func TestLabelMistakes(t *testing.T) {
	labels := func(text string) string { return "labels: [" + text + "]\norgs: [{id: acme}]\n" }
	limit := func(subject string) string {
		return "labels: [{name: project, from: [key]}, {name: run, default: a}]\norgs:\n  - id: acme\n    limits: [{name: a, amount: $5, window: 1h, " + subject + "}]\n"
	}
	checkWrong(t, []wrongFile{
		{"a reserved name", labels("{name: «user», default: a}"), "labels[0].name", "user cannot be the name of a label, because limits already count by it"},
		{"a name in capitals", labels("{name: «Project», default: a}"), "labels[0].name", `"Project" cannot be the name of a label (1 to 32 of a-z, 0-9 and _)`},
		{"a name twice", labels("{name: a, default: a}, {name: «a», default: a}"), "labels[1].name", `"a" is already used on line 1, by labels[0].name`},
		{"no source", labels("«{»name: a}"), "labels[0]", "has no value: add from, such as [header X-Project, body metadata.project, key], or default"},
		{"a strange source", labels("{name: a, from: [«cookie a»]}"), "labels[0].from[0]", `expected "header NAME", "body user", "body metadata.NAME" or key, got "cookie a"`},
		{"a deep field", labels("{name: a, from: [«body a.b»]}"), "labels[0].from[0]", `expected "header NAME", "body user", "body metadata.NAME" or key, got "body a.b"`},
		{"the key itself", labels("{name: a, from: [«header authorization»]}"), "labels[0].from[0]", "the header authorization contains the caller's key, which must not become a label"},
		{"a default and refuse", labels("{name: a, from: [key], default: b, missing: «refuse»}"), "labels[0].missing", `has no effect, because calls without a value have the default "b"`},
		{"too many values", labels("{name: a, from: [key], usage: true, max_values: «10001»}"), "labels[0].max_values", "must be from 1 to 10000 with usage: true"},
		{"an unknown subject", limit("subject: «projct»"), "orgs[0].limits[0].subject", `there is no subject "projct"; did you mean "project"?; the subjects are org, user, key, ip and the names in labels`},
		{"org combined", limit("«subject»: [org, project]"), "orgs[0].limits[0].subject", "org cannot be combined, because every limit counts each org on its own; leave it out"},
		{"a part twice", limit("«subject»: [user, user]"), "orgs[0].limits[0].subject", `"user" is there twice`},
		{"only of several", limit("subject: [user, project], only: «a»"), "orgs[0].limits[0].only", "is not possible with several subjects"},
		{"an unknown label of an org", "labels: [{name: project, from: [key]}]\norgs: [{id: acme, labels: {projct: «a»}}]\n", "orgs[0].labels.projct", `there is no label "projct" in labels; did you mean "project"?`},
		{"a label that is not of keys", "labels: [{name: run, default: a}]\norgs: [{id: acme, labels: {run: «b»}}]\n", "orgs[0].labels.run", "has no effect, because key is not in the from of label run"},
	})
}

// TestSubjects: a subject is a name or a list, whose order does not matter.
func TestSubjects(t *testing.T) {
	for given, want := range map[string]string{
		"project": "project", "[project]": "project", "[session, user]": "user+session", "user+session": "user+session",
		"[session, project, ip, key]": "key+ip+project+session",
	} {
		c, err := config.Parse("f.yaml", []byte(withProvider+`labels: [{name: project, default: a}, {name: session, default: a}]
orgs: [{id: acme, limits: [{name: a, amount: $5, window: 1h, subject: `+given+`}]}]
`), lookup)
		if err != nil {
			t.Errorf("subject: %s: %v", given, err)
			continue
		}
		if got := c.Orgs[0].Limits[0].Subject; got != want {
			t.Errorf("subject: %s is %s, want %s", given, got, want)
		}
	}
}
