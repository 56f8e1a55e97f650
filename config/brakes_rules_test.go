package config_test

import "testing"

// TestBrakeMistakes: a brake has a name, one complete rule, and a subject that exists.
func TestBrakeMistakes(t *testing.T) {
	brake := func(fields string) string { return "brakes:\n  - {name: a, " + fields + "}\n" }
	const calls = ", when: {calls: {more_than: 5}}"
	checkWrong(t, []wrongFile{
		{
			"no rule", brake("by: user, «when»: {}"), "brakes[0].when",
			"has no rule; add spend: {above: 5x}, repeats: {more_than: 20} or calls: {more_than: 500}",
		},
		{
			"two rules", brake("by: user, when: {«calls»: {more_than: 5}, repeats: {more_than: 5}}"), "brakes[0].when.calls",
			"the brake already fires at repeats; a brake has one rule, so write two brakes",
		},
		{
			"the org", brake("by: «org»" + calls), "brakes[0].by",
			"a brake is for runs, users, keys, addresses or labels; to stop an org, use a limit or llmguard stop",
		},
		{
			"a label that is not there", brake("by: «run»" + calls), "brakes[0].by",
			`there is no subject "run"; known: org, group, user, key, ip; the subjects are org, group, user, key, ip and the names in labels`,
		},
		{
			"a run and a user", brake("«by»: [run-budget, user]" + calls), "brakes[0].by",
			`expected org, group, user, key, ip or the name of a label, got "run-budget"`,
		},
		{
			"another action", brake("by: user, action: «halt»" + calls), "brakes[0].action",
			`expected one of stop, ask, slow, shadow, got "halt"`,
		},
		{
			"a life below the window", brake("by: user, for: «10m»" + calls), "brakes[0].for",
			"must be from 1d, the window of the rule, to 30d, so that the brake does not fire again for the same calls; " +
				"leave it out for until it is released",
		},
		{
			"no number of calls", brake("by: user, when: {«calls»: {window: 1h}}"), "brakes[0].when.calls",
			"more_than is missing: how many calls may be made",
		},
		{
			"a factor without x", brake("by: user, when: {spend: {above: «\"5\"»}}"), "brakes[0].when.spend.above",
			`expected a factor from 1.1x to 1000x such as 5x, got "5"`,
		},
		{
			"a factor that is too small", brake("by: user, when: {spend: {above: «1x»}}"), "brakes[0].when.spend.above",
			`expected a factor from 1.1x to 1000x such as 5x, got "1x"`,
		},
		{
			"a floor without a dollar", brake("by: user, when: {spend: {floor: «2»}}"), "brakes[0].when.spend.floor",
			`is money; did you mean "$2"?`,
		},
		{
			"a short window", brake("by: user, when: {repeats: {more_than: 5, window: «1s»}}"),
			"brakes[0].when.repeats.window", "must be from 10s to 1d, got 1s; leave it out for 5m",
		},
		{
			"an endpoint that is not served", brake("by: user, endpoints: [«chat»]" + calls), "brakes[0].endpoints[0]",
			`there is no endpoint "chat"; did you mean "chat.completions"?`,
		},
		{
			"the same name twice", brake("by: user"+calls) + "  - {name: «a», by: key" + calls + "}\n", "brakes[1].name",
			`"a" is already used on line 2, by brakes[0].name`,
		},
	})
}
