package config_test

import "testing"

// TestRequestLimitMistakes: a limit on requests has one shape, counts requests, and names what is
// served.
func TestRequestLimitMistakes(t *testing.T) {
	limit := func(fields string) string { return "request_limits:\n  - {name: a, subject: ip, " + fields + "}\n" }
	checkWrong(t, []wrongFile{
		{
			"money", limit("amount: «$5», window: 1m"), "request_limits[0].amount",
			"metric requests is limited by a count, not by money; leave out the $ or set metric: cost",
		},
		{
			"no shape", "request_limits:\n  - «{»name: a, subject: ip, amount: 5}\n", "request_limits[0]",
			"has no shape; add amount: 100 and window: 1m, or bucket",
		},
		{
			"a path without v1", limit("amount: 5, window: 1m, endpoints: [«jobs»]"), "request_limits[0].endpoints[0]",
			`write the path with /v1, such as /v1/jobs, or /v1/jobs* with everything below; got "jobs"`,
		},
		{
			"a path that is not served", limit("amount: 5, window: 1m, endpoints: [«/v1/jbos»]"),
			"request_limits[0].endpoints[0]", `no path that is served matches "/v1/jbos"; did you mean "/v1/jobs"?`,
		},
		{
			"a method in small letters", limit("amount: 5, window: 1m, methods: [«get»]"), "request_limits[0].methods[0]",
			`there is no method "get"; did you mean "GET"?; the methods are GET, HEAD, POST, DELETE`,
		},
		{
			"too many bits", "connections: {ipv6_prefix: «129»}\n", "connections.ipv6_prefix",
			"must be from 1 to 128 bits, got 129; leave it out for 64",
		},
	})
}
