package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/capacity"
)

const area = "redis"

// mostSkew is the maximum clock difference that is not reported.
const mostSkew = time.Second

// Facts are the fields of Redis INFO, by name.
type Facts map[string]string

// Store checks for settings that would lose money or jobs; every process runs it when it
// starts. If a server does not report them, as some managed ones do, a warning is returned and
// they are assumed to be right. The facts are nil if Redis does not respond.
func Store(ctx context.Context, rdb redis.UniversalClient) ([]Finding, Facts) {
	info, err := rdb.Info(ctx).Result() // several sections in one command require 7.0
	if err != nil {
		what := fmt.Sprintf("redis does not answer: %v", err)
		if denies(err) {
			what = fmt.Sprintf("redis does not allow INFO, which shows memory and failovers: %v", err)
		}
		return []Finding{{Area: area, Level: Error, What: what, Fix: awayFix(err)}}, nil
	}
	facts := parseInfo(info)
	return check(ctx, rdb, facts), facts
}

// check is Store for given facts, to which it adds what only CONFIG shows.
func check(ctx context.Context, rdb redis.UniversalClient, facts Facts) (out []Finding) {
	conf := readSettings(ctx, rdb)
	conf.complete(facts)
	add := func(level Level, what, fix string) {
		out = append(out, Finding{Area: area, Level: level, What: what, Fix: fix})
	}
	if v := facts["redis_version"]; v != "" && older(v, 6, 2) {
		add(Error, fmt.Sprintf("redis %s is too old: 6.2 or newer is needed", v), "Upgrade it.")
	}
	switch policy := facts["maxmemory_policy"]; policy {
	case "noeviction":
	case "":
		add(Warning, "redis does not report its eviction policy", "Make sure that it is noeviction.")
	default: // volatile-* as well, because all our keys have a lifetime
		add(Error, fmt.Sprintf("redis evicts keys (maxmemory-policy %s): spending and jobs would be lost silently", policy),
			conf.fix("Set maxmemory-policy noeviction.",
				"Set maxmemory-policy noeviction in the settings of the service (its parameter group or configuration)."))
	}
	if facts["arch_bits"] == "32" {
		add(Warning, "redis is a 32-bit build: calls are refused once it uses 3 GB", "Use a 64-bit build.")
	}
	if skew, ok := storeSkew(ctx, rdb); ok && skew.Abs() > mostSkew {
		add(Warning, fmt.Sprintf("redis's clock is %s ahead of this machine's", skew), "Synchronize the clocks of both "+
			"machines (NTP).")
	}
	out = append(out, persistence(conf, facts)...)
	return append(out, replicas(conf, facts)...)
}

// mostLag is how long, in seconds, a primary may accept writes without hearing from a replica
// before this is reported.
const mostLag = 10

// replicas checks what a primary does when it is cut off from its replicas. Without
// min-replicas-to-write it continues to accept writes, all of which are lost at a failover.
func replicas(conf settings, facts Facts) []Finding {
	if n := facts["connected_slaves"]; n == "" || n == "0" || facts["role"] == "slave" {
		return nil
	}
	lag := int64(-1) // unknown
	if write := conf.values["min-replicas-to-write"]; write != "" {
		lag, _ = strconv.ParseInt(conf.values["min-replicas-max-lag"], 10, 64)
		if write == "0" {
			lag = 0
		}
	} else if facts["min_slaves_good_slaves"] == "" { // present if both are set
		lag = 0
	}
	fix := conf.fix(
		"Set min-replicas-to-write 1 and min-replicas-max-lag 10 on every server, or store.durability: wait1.",
		"Set store.durability: wait1, or min-replicas-to-write 1 if the service has that setting.")
	switch {
	case lag == 0:
		return []Finding{{
			Area: area, Level: Warning,
			What: "redis accepts writes while it is disconnected from its replicas: a failover loses those writes",
			Fix:  fix,
		}}
	case lag > mostLag:
		return []Finding{{
			Area: area, Level: Warning,
			What: fmt.Sprintf("redis accepts writes for %d s while it is disconnected from its replicas", lag), Fix: fix,
		}}
	}
	return nil
}

// Durability checks whether Redis supports what store.durability requires.
func Durability(durability string, facts Facts) []Finding {
	finding := func(what, fix string) []Finding {
		return []Finding{{Area: area, Level: Error, What: what, Fix: fix}}
	}
	switch {
	case durability == "async" || durability == "" || facts["connected_slaves"] == "":
		return nil
	case facts["connected_slaves"] == "0":
		return finding(fmt.Sprintf("store.durability is %s and redis has no replica: every hold is refused", durability),
			"Connect a replica, or set store.durability: async.")
	case durability == "waitaof1" && older(facts["redis_version"], 7, 2):
		return finding("store.durability is waitaof1, and redis is older than 7.2: every hold is refused",
			"Upgrade it, or set store.durability: wait1.")
	case durability == "waitaof1" && facts["aof_enabled"] == "0":
		return finding("store.durability is waitaof1, and redis has no append-only file: every hold is refused",
			"Set appendonly yes on all servers.")
	}
	return nil
}

// awayFix returns the fix for a Redis that does not respond.
func awayFix(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"):
		return "Set redis.password (and redis.username) to what the server expects."
	case strings.Contains(text, "NOPERM"):
		return "Allow the ACL user to run INFO in addition to the data commands."
	case strings.Contains(text, "connection refused"):
		return "Check that it is running there: run `redis-cli -h HOST -p PORT ping` on this machine."
	case strings.Contains(text, "no such host"):
		return "Check the host name and the DNS settings of this machine."
	case strings.Contains(text, "certificate"), strings.Contains(text, "tls"), strings.Contains(text, "EOF"):
		return "Check whether the server uses TLS, and set redis.tls to match."
	}
	return "Check that it is running and that this machine can reach it."
}

// StoreMore checks for what makes a store slow or fragile. deadline is how long a call waits
// for it.
func StoreMore(ctx context.Context, rdb redis.UniversalClient, facts Facts, deadline time.Duration) []Finding {
	var out []Finding
	add := func(level Level, what, fix string) {
		out = append(out, Finding{Area: area, Level: level, What: what, Fix: fix})
	}
	name, version := program(facts)
	if since := patchedSince(name, version); since != "" {
		add(Warning, fmt.Sprintf("%s %s lacks the fix for CVE-2025-49844: clients that can run scripts can run any "+
			"code", name,
			version),
			fmt.Sprintf("Upgrade to %s or newer, and keep other clients off it.", since))
	}
	if facts["role"] == "slave" {
		add(Error, "this redis is a replica: it accepts no writes", "Set redis.addresses to the primary, or use mode: "+
			"sentinel.")
	}
	if facts["aof_enabled"] == "1" && facts["aof_last_write_status"] == "err" {
		add(Error, "redis cannot write its append-only file", "Check its disk and its log.")
	}
	if facts["loading"] == "1" {
		add(Error, "redis is still loading its data", "Wait until it has finished.")
	}
	out = append(out, untested(facts)...)
	out = append(out, memory(ctx, rdb, facts)...)
	out = append(out, hidden(facts)...)
	if readSettings(ctx, rdb).denied {
		add(OK, "redis has no CONFIG, as usual for a managed service: compare its appendfsync and min-replicas-to-write "+
			"with the documentation yourself", "")
	}
	middle, most, err := latency(ctx, rdb)
	switch {
	case err != nil:
		add(Error, fmt.Sprintf("redis does not answer: %v", err), awayFix(err))
	case middle > deadline/2:
		add(Error, fmt.Sprintf("redis takes %s to answer: each call makes two requests, and is refused if one takes "+
			"longer than store.deadline (%s)",
			middle, deadline), "Move it closer to llmguard, and check SLOWLOG GET.")
	case middle > deadline/10:
		add(Warning, fmt.Sprintf("redis takes %s to answer; each call waits for two answers", middle),
			"Move it closer to llmguard, and check SLOWLOG GET.")
	default:
		add(OK, fmt.Sprintf("%s %s answers in %s (slowest of %d: %s)", name, cmp.Or(version, "of unknown version"),
			middle, looks, most), "")
	}
	return out
}

func memory(ctx context.Context, rdb redis.UniversalClient, facts Facts) []Finding {
	used, _ := strconv.ParseInt(facts["used_memory"], 10, 64)
	most, _ := strconv.ParseInt(facts["maxmemory"], 10, 64)
	switch {
	case facts["used_memory"] == "":
	case most == 0:
		return []Finding{{
			Area: area, Level: Warning,
			What: "redis has no maxmemory: it grows until the machine runs out of memory",
			Fix:  "Set maxmemory below the machine's memory, and alert well before it is reached.",
		}}
	case used >= most:
		return []Finding{{
			Area: area, Level: Error,
			What: fmt.Sprintf("redis has no memory left (%d of %d bytes): calls get 503 store_full%s", used, most,
				mostCounted(ctx, rdb)),
			Fix: "Raise maxmemory. What frees memory still works: end runs, cancel jobs, delete files, disable or purge " +
				"orgs. `llmguard doctor --keys` shows what takes the memory.",
		}}
	case used*100/most >= 80:
		return []Finding{{
			Area: area, Level: Warning,
			What: fmt.Sprintf("redis uses %d%% of its maxmemory; no jobs are accepted beyond queue.memory_share%s",
				used*100/most, mostCounted(ctx, rdb)),
			Fix: "Raise maxmemory, or lower queue.result_ttl and ledger.max_entries.",
		}}
	}
	return nil
}

// mostCounted names the org whose callers keep most in Redis; empty if none keeps anything.
func mostCounted(ctx context.Context, rdb redis.UniversalClient) string {
	org, bytes, err := capacity.Largest(ctx, rdb)
	if err != nil || bytes == 0 {
		return ""
	}
	return fmt.Sprintf("; callers of org %s keep most in it, %d bytes", org, bytes)
}

// looks is the number of PINGs that latency sends.
const looks = 20

// latency returns the median and the maximum time of a PING.
func latency(ctx context.Context, rdb redis.UniversalClient) (middle, most time.Duration, err error) {
	var all []time.Duration
	for range looks {
		asked := time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil {
			return 0, 0, err
		}
		all = append(all, time.Since(asked).Round(time.Microsecond))
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)-1], nil
}

// patched are the first versions of each branch with the fix for CVE-2025-49844, by program.
var patched = map[string][][3]int{
	"redis":  {{6, 2, 20}, {7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2}},
	"valkey": {{7, 2, 11}, {8, 0, 6}, {8, 1, 4}},
}

// patchedSince returns the version to upgrade to, or "" if the version is fixed or cannot be
// parsed.
func patchedSince(program, version string) string {
	var v [3]int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); n < 3 {
		return ""
	}
	branches := patched[program]
	for _, good := range branches {
		switch {
		case v[0] == good[0] && v[1] == good[1] && v[2] >= good[2]:
			return ""
		case v[0] < good[0] || v[0] == good[0] && v[1] <= good[1]:
			return fmt.Sprintf("%d.%d.%d", good[0], good[1], good[2])
		}
	}
	return "" // newer than all of them
}

// storeSkew returns by how much Redis's clock is ahead, at least. Limits use Redis's clock;
// prices, key expiry and deadlines use this machine's.
func storeSkew(ctx context.Context, rdb redis.UniversalClient) (time.Duration, bool) {
	asked := time.Now()
	there, err := rdb.Time(ctx).Result()
	if err != nil {
		return 0, false
	}
	return budget.ClockSkew(asked, time.Now(), there), true
}

func parseInfo(text string) Facts {
	facts := Facts{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	return facts
}

// older reports whether a version such as "7.0.15" is below major.minor.
func older(version string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(version, "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a < major || (a == major && b < minor)
}
