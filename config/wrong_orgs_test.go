package config_test

import (
	"fmt"
	"strings"
	"testing"
)

const aHash = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

func TestOrgMistakes(t *testing.T) {
	org := func(fields string) string { return "orgs:\n  - id: acme\n    " + fields + "\n" }
	key := func(fields string) string {
		return org("users:\n      - id: ann\n        keys: [{id: k, hash: \"" + aHash + "\", " + fields + "}]")
	}
	checkWrong(t, []wrongFile{
		{
			"an id twice", "orgs:\n  - id: acme\n  - id: «acme»\n", "orgs[1].id",
			`"acme" is already used on line 2, by orgs[0].id`,
		},
		{
			"a user twice", org("users: [{id: ann}, {id: «ann»}]"), "orgs[0].users[1].id",
			`"ann" is already used on line 3, by orgs[0].users[0].id`,
		},
		{
			"a wait of an org that refuses", org("over_limit: refuse\n    max_wait: «5m»"), "orgs[0].max_wait",
			"has no effect with over_limit: refuse",
		},
		{
			"a step too small", org("hold: grow\n    grow_step: «19»"), "orgs[0].grow_step",
			"must be from 20 to 1M tokens, got 19; leave it out for 800",
		},
		{
			"a step too large", org("hold: grow\n    grow_step: «1000001»"), "orgs[0].grow_step",
			"must be from 20 to 1M tokens, got 1000001; leave it out for 800",
		},
		{
			"a downgrade to itself", org("downgrade: {gpt-5: «gpt-5»}"), "orgs[0].downgrade.gpt-5",
			`"gpt-5" is not the name of another model`,
		},
		{
			"a downgrade to a pattern", org(`downgrade: {gpt-5: «"gpt-*"»}`), "orgs[0].downgrade.gpt-5",
			`"gpt-*" is not the name of another model`,
		},
		{"no parts", org("spread: «0»"), "orgs[0].spread", "must be above 0; leave it out for the default, 1"},
		{"too many parts", org("spread: «65»"), "orgs[0].spread", "must be from 1 to 64 parts, got 65; leave it out for 1"},
		{
			"a spread of a limit of the org", org("spread: «4»\n    limits: [{name: m, amount: $5, window: 1h}]"), "orgs[0].spread",
			`limit "m" on line 4 counts the whole org, so all calls must be decided in one place; set its subject to user, its ` +
				"mode to shadow, or use spend_caps",
		},
		{
			"a spread of a default limit", "defaults: {limits: [{name: m, amount: $5, window: 1h}]}\n" + org("spread: «4»"),
			"orgs[0].spread", `limit "m" on line 1 counts the whole org, so all calls must be decided in one place; set its ` +
				"subject to user, its mode to shadow, or use spend_caps",
		},
		{
			"a spread of a limit by label", "labels: [{name: project, from: [key]}]\n" +
				org("spread: «4»\n    limits: [{name: m, subject: [project], amount: $5, window: 1h}]"), "orgs[0].spread",
			`limit "m" on line 5 counts all users together, so all calls must be decided in one place; add user to its ` +
				"subject, set its mode to shadow, or use spend_caps",
		},
		{
			"a spread by users, and by addresses and labels", "labels: [{name: project, from: [key]}]\n" +
				org("spread: «4»\n    limits: [{name: u, subject: [user, project], amount: $5, window: 1h}, "+
					"{name: a, subject: [ip, project], amount: $5, window: 1h}]"), "orgs[0].spread",
			`limit "u" on line 5 counts by user+project and others by address, and all limits of a call must be in one part; ` +
				"enforce limits by user and key, or by address",
		},
		{
			"a spread by users and addresses", org("spread: «4»\n    limits: [{name: u, subject: user, amount: $5, window: 1h}, " +
				"{name: a, subject: ip, amount: $5, window: 1h}]"), "orgs[0].spread",
			`limit "u" on line 4 counts by user and others by address, and all limits of a call must be in one part; enforce ` +
				"limits by user and key, or by address",
		},
		{
			"a spread by addresses of a user with limits", org("spread: «4»\n    limits: [{name: a, subject: ip, amount: $5, " +
				"window: 1h}]\n    users: [{id: ann, limits: [{name: u, amount: $5, window: 1h}]}]"), "orgs[0].spread",
			`user "ann" on line 5 has limits of its own and others count by address, and all limits of a call must be in one ` +
				"part; enforce limits by user and key, or by address",
		},
		{
			"a spread of a shadow bucket", org("spread: «4»\n    limits: [{name: b, mode: shadow, bucket: {capacity: $5}}]"),
			"orgs[0].spread", `limit "b" on line 4 is a bucket that would fill in each part separately; set its mode to off`,
		},
		{
			"a cache cost without a cache", org("cache: {cost: «25%»}"), "orgs[0].cache.cost",
			"has no effect without max_age",
		},
		{"an age in ms", org("cache: {max_age: «10ms»}"), "orgs[0].cache.max_age", "must be from 1s to 30d, got 10ms"},
		{"a long age", org("cache: {max_age: «31d»}"), "orgs[0].cache.max_age", "must be from 1s to 30d, got 31d"},
		{"no weight", org("weight: «0»"), "orgs[0].weight", "must be above 0; leave it out for the default, 100"},
		{
			"no provider", org("«providers»: []"), "orgs[0].providers",
			"is empty; remove it to allow all, or list what is allowed",
		},
		{
			"calls kept nowhere", org("on_store_failure: «local»"), "orgs[0].on_store_failure",
			"local needs store.journal_dir, a directory on disk: calls are kept there until Redis can charge them",
		},
		{
			"a scope misspelt", key("scopes: [«embedding»]"), "orgs[0].users[0].keys[0].scopes[0]",
			`there is no scope "embedding"; did you mean "embeddings"?; the scopes are calls, jobs, files, batches, usage, runs, ` +
				"limit_requests, limit_requests.org, " +
				"audio.speech, audio.transcriptions, audio.translations, chat.completions, completions, containers, embeddings, holds, images.edits, " +
				"images.generations, images.variations, moderations, responses, responses.compact, responses.input_tokens, vector_stores",
		},
		{
			"a key without a model", key("«models»: []"), "orgs[0].users[0].keys[0].models",
			"is empty; remove it to allow all, or list what is allowed",
		},
		{
			"a network with host bits", key("networks: [«10.1.2.3/8»]"), "orgs[0].users[0].keys[0].networks[0]",
			"10.1.2.3/8 is an address inside a range; write the range as 10.0.0.0/8",
		},
		{
			"a key of no calls", key("concurrency: «0»"), "orgs[0].users[0].keys[0].concurrency",
			"must be above 0; omit it for no limit",
		},
		{
			"somebody else's limit", org("users: [{id: ann, limits: [{name: a, only: «bob», amount: $5, window: 1h}]}, {id: bob}]"),
			"orgs[0].users[0].limits[0].only", "a limit under a user applies only to that user; remove only",
		},
		{
			"a limit twice under a user",
			org("users: [{id: ann, limits: [{name: a, amount: $5, window: 1h}, {name: «a», amount: $5, window: 1d}]}]"),
			"orgs[0].users[0].limits[1].name", `"a" is already used on line 3, by orgs[0].users[0].limits[0].name`,
		},
		{
			"request webhooks for no host", org("«request_webhooks»: {secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]}"),
			"orgs[0].request_webhooks", "hosts is missing: list the hosts that requests may name",
		},
	})
}

func TestHashMistakes(t *testing.T) {
	key := func(hash string) string { return "admin:\n  keys:\n    - {id: root, hash: " + hash + "}\n" }
	form := `expected "sha256:" or "<pepper id>:" and 64 lower-case hex digits, got `
	upper := "sha256:" + strings.Repeat("AB", 32)
	short := "sha256:" + strings.Repeat("ab", 31)
	checkWrong(t, []wrongFile{
		{"no digits", key("«none»"), "admin.keys[0].hash", form + `"none"`},
		{"capitals", key("«" + upper + "»"), "admin.keys[0].hash", form + fmt.Sprintf("%q", upper[:60]+"…")},
		{"too short", key("«" + short + "»"), "admin.keys[0].hash", form + fmt.Sprintf("%q", short[:60]+"…")},
		{
			"an administrator twice", key(aHash) + "    - {id: «root», hash: sha256:" + strings.Repeat("cd", 32) + "}\n",
			"admin.keys[1].id", `"root" is already used on line 3, by admin.keys[0].id`,
		},
		{
			"a hash twice", key(aHash) + "    - {id: two, hash: «" + aHash + "»}\n",
			"admin.keys[1].hash", `"` + aHash + `" is already used on line 3, by admin.keys[0].hash`,
		},
		{
			"the id of hashes without a pepper", "auth:\n  peppers: [{id: «sha256», secret: \"${PEPPER}\"}]\n",
			"auth.peppers[0].id", `"sha256" marks hashes made without a pepper; choose another id`,
		},
	})
}

// TestDamagedKeyIsNotRepeated: an error never contains a key in clear text, not even one with a
// wrong checksum.
func TestDamagedKeyIsNotRepeated(t *testing.T) {
	const key = "lg_live_0123456789ABCDEFGHIJKLMNOPQRST1MiZzz"
	all := refusals(t, "admin: {keys: [{id: root, hash: "+key+"}]}")
	if got := all.Error(); strings.Contains(got, key) ||
		!strings.Contains(got, "this is a key, not its hash, and it is damaged: ") {
		t.Errorf("got\n%s", got)
	}
}
