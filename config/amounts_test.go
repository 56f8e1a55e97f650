package config_test

import "testing"

// oneLimit returns a file with one limit that has the given fields.
func oneLimit(fields string) string {
	return "orgs:\n  - id: acme\n    limits:\n      - " + fields + "\n"
}

func TestLimitShapeMistakes(t *testing.T) {
	checkWrong(t, []wrongFile{
		{
			"a window without an amount", oneLimit("«{»name: a, window: 1h}"),
			"orgs[0].limits[0]", "amount is missing: how much per window",
		},
		{
			"a calendar without an amount", oneLimit("«{»name: a, calendar: day}"),
			"orgs[0].limits[0]", "amount is missing: how much per calendar",
		},
		{
			"concurrency without an amount", oneLimit("«{»name: a, metric: concurrency}"),
			"orgs[0].limits[0]", "amount is missing: how many calls may be open in parallel",
		},
		{
			"concurrency in a calendar", oneLimit("{name: a, metric: concurrency, amount: 3, calendar: «day»}"),
			"orgs[0].limits[0].calendar", "concurrency counts open calls; it takes amount alone",
		},
		{
			"concurrency of money", oneLimit("{name: a, metric: concurrency, amount: «$3»}"),
			"orgs[0].limits[0].amount", "metric concurrency is limited by a count, not by money; leave out the $ or set metric: cost",
		},
		{
			"requests of money", oneLimit("{name: a, metric: requests, amount: «$3», window: 1h}"),
			"orgs[0].limits[0].amount", "metric requests is limited by a count, not by money; leave out the $ or set metric: cost",
		},
		{
			"a bucket of tokens in dollars", oneLimit("{name: a, metric: tokens, bucket: {capacity: «$5»}}"),
			"orgs[0].limits[0].bucket.capacity", "metric tokens is limited by a count, not by money; leave out the $ or set metric: cost",
		},
		{
			"a bucket refilled by a count", oneLimit("{name: a, bucket: {capacity: $5, refill: «5/1h»}}"),
			"orgs[0].limits[0].bucket.refill", `metric cost is limited in money; did you mean "$5"?`,
		},
		{
			"a calendar and a bucket", oneLimit("{name: a, calendar: day, «bucket»: {capacity: $5}}"),
			"orgs[0].limits[0].bucket", "the limit already has a calendar; a limit has one shape, so write two limits",
		},
		{
			"an exact calendar", oneLimit("{name: a, amount: $5, calendar: day, exact: «true»}"),
			"orgs[0].limits[0].exact", "has no effect without window",
		},
		{
			"a fixed calendar", oneLimit("{name: a, amount: $5, calendar: day, fixed: «true»}"),
			"orgs[0].limits[0].fixed", "has no effect without window",
		},
		{
			"a fixed exact window", oneLimit("{name: a, amount: $5, window: 5m, fixed: true, exact: «true»}"),
			"orgs[0].limits[0].exact", "cannot be combined with fixed; use one of the two",
		},
		{
			"a fixed window of a fraction", oneLimit("{name: a, amount: $5, window: «1.5s», fixed: true}"),
			"orgs[0].limits[0].window", "a fixed window has whole seconds",
		},
		{
			"a month from the 31st", oneLimit(`{name: a, amount: $5, calendar: month, starts: «"31"»}`),
			"orgs[0].limits[0].starts", `a month starts on a day from 1 to 28, which every month has, not "31"`,
		},
		{
			"a week from so", oneLimit("{name: a, amount: $5, calendar: week, starts: «so»}"),
			"orgs[0].limits[0].starts", `a week starts on a day such as sunday, not "so"`,
		},
		{
			"a year from the 6th of April", oneLimit("{name: a, amount: $5, calendar: year, starts: «6.4.»}"),
			"orgs[0].limits[0].starts", `a year starts on a date such as "04-06" (month-day, day 1 to 28), not "6.4."`,
		},
		{
			"a day from eight", oneLimit(`{name: a, amount: $5, calendar: day, starts: «"8"»}`),
			"orgs[0].limits[0].starts", "is for calendar: week, month, quarter or year",
		},
		{
			"an exact window of more than an hour", oneLimit("{name: a, amount: $5, window: 61m, exact: «true»}"),
			"orgs[0].limits[0].exact", "keeps one entry per call, so it is only for windows up to 1h; remove it here",
		},
		{
			"a window of less than a second", oneLimit("{name: a, amount: $5, window: «999ms»}"),
			"orgs[0].limits[0].window", "must be from 1s to 366d, got 999ms",
		},
		{
			"a window of more than a year", oneLimit("{name: a, amount: $5, window: «366d1s»}"),
			"orgs[0].limits[0].window", "must be from 1s to 366d, got 8784h0m1s",
		},
		{
			"a window of nothing", oneLimit("{name: a, amount: $5, window: «0s»}"),
			"orgs[0].limits[0].window", "must be above 0; omit it for no limit",
		},
		{
			"a zone of a bucket", oneLimit("{name: a, bucket: {capacity: $5}, tz: «UTC»}"),
			"orgs[0].limits[0].tz", "has no effect without calendar",
		},
		{
			"the zone of the machine", oneLimit("{name: a, amount: $5, calendar: day, tz: «Local»}"),
			"orgs[0].limits[0].tz", `there is no time zone "Local"; names look like Europe/Berlin or UTC`,
		},
		{
			"no models at all", oneLimit("{name: a, amount: $5, window: 1h, «models»: []}"),
			"orgs[0].limits[0].models", "is empty; remove it to allow all, or list what is allowed",
		},
		{
			"a model with a space", oneLimit("{name: a, amount: $5, window: 1h, models: [«gpt 5»]}"),
			"orgs[0].limits[0].models[0]", `expected a name or a pattern with * in it, got "gpt 5"`,
		},
		{
			"a regular expression", oneLimit(`{name: a, amount: $5, window: 1h, models: [«"gpt-[45]"»]}`),
			"orgs[0].limits[0].models[0]", `expected a name or a pattern with * in it, got "gpt-[45]"`,
		},
		{
			"a pattern that no endpoint has", oneLimit(`{name: a, amount: $5, window: 1h, endpoints: [«"*.foo"»]}`),
			"orgs[0].limits[0].endpoints[0]", `there is no endpoint "*.foo"; known: audio.speech, audio.transcriptions, ` +
				"audio.translations, chat.completions, completions, containers, embeddings, holds, images.edits, images.generations, " +
				"images.variations, moderations, responses, responses.compact, responses.input_tokens, vector_stores",
		},
		{
			"a key that is not in the org", oneLimit("{name: a, subject: key, only: «laptop», amount: $5, window: 1h}"),
			"orgs[0].limits[0].only", `there is no key "laptop"`,
		},
	})
}

// TestLimitShapesThatAreTaken: every shape in the reference is accepted, up to the bounds of its
// range.
func TestLimitShapesThatAreTaken(t *testing.T) {
	for _, fields := range []string{
		"{name: a, amount: $5, window: 1s}",
		"{name: a, amount: $5, window: 366d}",
		"{name: a, amount: $5, window: 1h, exact: true}",
		"{name: a, metric: tokens, amount: 1M, calendar: minute}",
		"{name: a, metric: requests, amount: 10, calendar: hour, tz: Asia/Kathmandu}",
		"{name: a, amount: $5, calendar: week, tz: Europe/Berlin}",
		"{name: a, amount: $5, calendar: month}",
		"{name: a, bucket: {capacity: $5}}",
		"{name: a, metric: tokens, bucket: {capacity: 5k, refill: 100/s}}",
		"{name: a, metric: concurrency, amount: 3, subject: key}",
		"{name: a, subject: ip, only: 10.0.0.7, amount: $5, window: 1h}",
		"{name: a, subject: ip, only: 10.0.0.0/8, amount: $5, window: 1h}",
		"{name: a, amount: $5, window: 1h, endpoints: [\"*\"], models: [\"gpt-*-mini\"]}",
	} {
		cfg := read(t, oneLimit(fields))
		if n := len(cfg.Orgs[0].Limits); n != 1 {
			t.Errorf("%s: got %d limits, want 1", fields, n)
		}
	}
}

// TestAmountMistakes: for an amount that is neither money nor a count, the error suggests both; the
// unit is not checked for an unknown metric.
func TestAmountMistakes(t *testing.T) {
	const both = `expected money such as "$5" or a whole number such as 1500, 150k or 2M, got `
	checkWrong(t, []wrongFile{
		{"another currency", "spend_caps: [{name: a, amount: «€5», window: 1h}]", "spend_caps[0].amount", both + `"€5"`},
		{"a unit", "spend_caps: [{name: a, amount: «5 tokens», window: 1h}]", "spend_caps[0].amount", both + `"5 tokens"`},
		{
			"money of an unknown metric", "spend_caps: [{name: a, metric: «dollars», amount: $5, window: 1h}]", "spend_caps[0].metric",
			`expected one of cost, tokens, requests, got "dollars"`,
		},
	})
}

// TestSpendCapMistakes: spend caps are checked like limits in both places where they may be.
func TestSpendCapMistakes(t *testing.T) {
	provider := "providers:\n  - id: openai\n    base_url: https://a.example/v1\n    spend_caps: "
	checkWrong(t, []wrongFile{
		{
			"no shape", "spend_caps: [«{»name: a, amount: $5}]", "spend_caps[0]",
			"amount of what time? add window: 1h (sliding), calendar: month (fixed), or use bucket",
		},
		{
			"a count", "spend_caps: [{name: a, amount: «5», window: 1h}]", "spend_caps[0].amount",
			`metric cost is limited in money; did you mean "$5"?`,
		},
		{
			"open calls", "spend_caps: [{name: a, metric: «concurrency», amount: 5}]", "spend_caps[0].metric",
			`expected one of cost, tokens, requests, got "concurrency"`,
		},
		{
			"a subject", "spend_caps: [{name: a, «subject»: org, amount: $5, window: 1h}]", "spend_caps[0]",
			`unknown field "subject" here; it belongs under defaults.limits[] or defaults.plans[].limits[] or orgs[].groups[].limits[] or orgs[].limits[] or orgs[].plans[].limits[] or orgs[].users[].limits[] or request_limits[]`,
		},
		{
			"twice", "spend_caps: [{name: a, amount: $5, window: 1h}, {name: «a», amount: $9, window: 1d}]",
			"spend_caps[1].name",
			`"a" is already used on line 1, by spend_caps[0].name`,
		},
		{
			"of a provider, twice", provider + "[{name: a, amount: $5, window: 1h}, {name: «a», amount: $9, window: 1d}]",
			"providers[0].spend_caps[1].name", `"a" is already used on line 4, by providers[0].spend_caps[0].name`,
		},
		{
			"of a provider, no shape", provider + "[«{»name: a}]", "providers[0].spend_caps[0]",
			`has no shape; add amount: "$5" and window: 1h, or amount and calendar, or bucket`,
		},
	})
}
