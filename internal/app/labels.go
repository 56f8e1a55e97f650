package app

import (
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
)

// labels returns the labels of calls.
func labels(c *config.Config) []guard.Label {
	out := make([]guard.Label, 0, len(c.Labels))
	for _, l := range c.Labels {
		one := guard.Label{
			Name: l.Name, Default: l.Default, Required: l.Missing == "refuse", MaxValues: int(l.MaxValues), Usage: l.Usage,
			IgnoreInvalid: l.Agents,
		}
		for _, text := range l.From {
			switch kind, name := config.LabelSource(text); kind {
			case "header":
				one.From = append(one.From, guard.LabelSource{Header: name})
			case "body":
				one.From = append(one.From, guard.LabelSource{Field: name})
			default:
				one.From = append(one.From, guard.LabelSource{Key: true})
			}
		}
		out = append(out, one)
	}
	return out
}

// SummedLabels returns the labels by which the ledger keeps sums.
func SummedLabels(c *config.Config) []string {
	var out []string
	for _, l := range c.Labels {
		if l.Usage {
			out = append(out, l.Name)
		}
	}
	return out
}
