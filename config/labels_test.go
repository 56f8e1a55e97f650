package config

import (
	"fmt"
	"testing"
)

// TestAgentLabels: the word agents defines its labels, alone, from the environment, and in a list, in which the labels
// after it keep their index.
func TestAgentLabels(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"labels: agents", "[session agent parent_agent]"},
		{"labels: ${ABSENT:-agents}", "[session agent parent_agent]"},
		{"labels: [agents, {name: a, default: x}]", "[session a agent parent_agent]"},
		{"labels: [{name: a, default: x}, agents]", "[a session agent parent_agent]"},
		{"labels: [{name: agents, default: x}]", "[agents]"},
	} {
		cfg := read(t, c.text)
		if got := fmt.Sprint(labelNames(cfg)); got != c.want {
			t.Errorf("%s: got labels %s, want %s", c.text, got, c.want)
		}
		for _, l := range cfg.Labels {
			if l.MaxValues != 10_000 || l.Missing != "count" || l.Usage {
				t.Errorf("%s: label %s has other defaults than a label of one's own: %+v", c.text, l.Name, l)
			}
			if l.Agents && !l.chosen() || l.Agents != (l.Default == "") {
				t.Errorf("%s: label %s is of agents: %t, from %v", c.text, l.Name, l.Agents, l.From)
			}
		}
	}
	brake := Brake{By: "session"}
	if subject, peers := read(t, "labels: agents").BrakeSubject(brake); subject != "user+session" || peers != "user" {
		t.Errorf("a brake by session counts %s among those of the %s, want the sessions of a user", subject, peers)
	}
}
