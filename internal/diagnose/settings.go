package diagnose

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// asked are the settings that are read with CONFIG. Redis 6.2 takes one name per command.
var asked = []string{"maxmemory-policy", "appendonly", "appendfsync", "min-replicas-to-write", "min-replicas-max-lag"}

// settings are the values of a server's settings, by name.
type settings struct {
	values map[string]string
	denied bool // managed services have no CONFIG, or no rights for it
}

// readSettings reads a server's settings. They are empty if it has no CONFIG.
func readSettings(ctx context.Context, rdb redis.UniversalClient) settings {
	s := settings{values: map[string]string{}}
	for _, name := range asked {
		got, err := rdb.ConfigGet(ctx, name).Result()
		if err != nil {
			_, s.denied = errors.AsType[redis.Error](err)
			return s
		}
		s.values[name] = got[name]
	}
	return s
}

// complete adds to the facts what INFO hides and CONFIG shows.
func (s settings) complete(facts Facts) {
	add := func(fact, value string) {
		if facts[fact] == "" && value != "" {
			facts[fact] = value
		}
	}
	add("maxmemory_policy", s.values["maxmemory-policy"])
	add("aof_enabled", map[string]string{"yes": "1", "no": "0"}[s.values["appendonly"]])
}

// fix returns what to do about a setting: a managed service has it elsewhere.
func (s settings) fix(own, managed string) string {
	if s.denied {
		return managed
	}
	return own
}

// persistence checks that a restart keeps the data.
func persistence(s settings, facts Facts) []Finding {
	warn := func(what, fix string) []Finding { return []Finding{{Area: area, Level: Warning, What: what, Fix: fix}} }
	switch {
	case facts["aof_enabled"] == "":
		return warn("redis does not report whether it has an append-only file",
			"Make sure that a restart keeps its data.")
	case facts["aof_enabled"] == "0":
		return warn("redis has no append-only file: a restart loses spending and jobs", s.fix("Set appendonly yes.",
			"Turn on append-only persistence in the settings of the service. If it has none, use a replica and "+
				"store.durability: wait1."))
	case s.values["appendfsync"] == "no":
		return warn("redis leaves the time of disk writes to the system (appendfsync no): a crash of the machine loses "+
			"up to 30 s of spending and jobs", "Set appendfsync everysec or always.")
	}
	return nil
}

// hidden names the facts that a server does not report, and what does not work without them.
func hidden(facts Facts) (out []Finding) {
	add := func(what, fix string) {
		out = append(out, Finding{Area: area, Level: Warning, What: what, Fix: fix})
	}
	if facts["used_memory"] == "" {
		add("redis does not report its memory (INFO memory): queue.memory_share and ledger.memory_share have no effect",
			"Alert on its memory in the service, and set ledger.max_entries and queue.result_ttl so that it suffices.")
	}
	if facts["run_id"] == "" && facts["master_replid"] == "" {
		add("redis does not report its run id (INFO server, INFO replication): a failover is not noticed, and charges "+
			"that it loses are not written again", "Use a service that reports it, or set store.durability: wait1.")
	}
	return out
}

// newest is the newest tested major version of each program.
var newest = map[string]int{"redis": 8, "valkey": 9}

// program returns which server it is, and its version. Valkey has a redis_version too, for old
// clients.
func program(facts Facts) (name, version string) {
	if v := facts["valkey_version"]; v != "" {
		return "valkey", v
	}
	return "redis", facts["redis_version"]
}

// untested returns a warning if a server is newer than those that llmguard was tested with.
func untested(facts Facts) []Finding {
	name, version := program(facts)
	var major int
	if n, _ := fmt.Sscanf(version, "%d.", &major); n < 1 || major <= newest[name] {
		return nil
	}
	return []Finding{{
		Area: area, Level: Warning,
		What: fmt.Sprintf("%s %s is newer than this llmguard, which was tested with %s up to %d", name, version, name,
			newest[name]),
		Fix: "Update llmguard, or test it with this server first.",
	}}
}

// denies reports whether the server understood a command and refused it.
func denies(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "NOPERM") || strings.HasPrefix(text, "ERR unknown command")
}
