package diagnose

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// asked are the settings that are read with CONFIG. Redis 6.2 takes one name per command.
var asked = []string{"maxmemory-policy", "appendonly", "appendfsync", "min-replicas-to-write", "min-replicas-max-lag"}

// settings are the values of a server's settings, by name.
type settings struct {
	values map[string]string
	denied bool // managed services have no CONFIG, or no rights for it
}

// readSettings reads a server's settings. They are empty if it has no CONFIG.
func readSettings(ctx context.Context, rdb redisconn.DB) settings {
	s := settings{values: map[string]string{}}
	for _, name := range asked {
		got, err := rdb.ConfigGet(ctx, name).Result()
		if err != nil {
			_, s.denied = errors.AsType[redisconn.Error](err)
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

// Settings checks for settings that would lose money or jobs; every process runs it when it
// starts. If a server does not report them, as some managed ones do, a warning is added and
// they are assumed to be right.
func (s *Server) Settings(ctx context.Context, r *Report) {
	if v := s.facts["redis_version"]; v != "" && older(v, 6, 2) {
		r.Add(Error, fmt.Sprintf("redis %s is too old: 6.2 or newer is needed", v), "Upgrade it.")
	}
	switch policy := s.facts["maxmemory_policy"]; policy {
	case "noeviction":
	case "":
		r.Add(Warning, "redis does not report its eviction policy", "Make sure that it is noeviction.")
	default: // volatile-* as well, because all our keys have a lifetime
		r.Add(Error, fmt.Sprintf("redis evicts keys (maxmemory-policy %s): spending and jobs would be lost silently", policy),
			s.conf.fix("Set maxmemory-policy noeviction.",
				"Set maxmemory-policy noeviction in the settings of the service (its parameter group or configuration)."))
	}
	if s.facts["arch_bits"] == "32" {
		r.Add(Warning, "redis is a 32-bit build: calls are refused once it uses 3 GB", "Use a 64-bit build.")
	}
	if skew, ok := storeSkew(ctx, s.rdb); ok && skew.Abs() > mostSkew {
		r.Add(Warning, fmt.Sprintf("redis's clock is %s ahead of this machine's", skew),
			"Synchronize the clocks of both machines (NTP).")
	}
	s.persistence(r)
	s.replicas(r)
}

// persistence checks that a restart keeps the data.
func (s *Server) persistence(r *Report) {
	switch {
	case s.facts["aof_enabled"] == "":
		r.Add(Warning, "redis does not report whether it has an append-only file",
			"Make sure that a restart keeps its data.")
	case s.facts["aof_enabled"] == "0":
		r.Add(Warning, "redis has no append-only file: a restart loses spending and jobs",
			s.conf.fix("Set appendonly yes.", "Turn on append-only persistence in the settings of the service. "+
				"If it has none, use a replica and store.durability: wait1."))
	case s.conf.values["appendfsync"] == "no":
		r.Add(Warning, "redis leaves the time of disk writes to the system (appendfsync no): a crash of the machine loses "+
			"up to 30 s of spending and jobs", "Set appendfsync everysec or always.")
	}
}

// mostLag is how long, in seconds, a primary may accept writes without hearing from a replica
// before this is reported.
const mostLag = 10

// replicas checks what a primary does when it is cut off from its replicas. Without
// min-replicas-to-write it continues to accept writes, all of which are lost at a failover.
func (s *Server) replicas(r *Report) {
	if n := s.facts["connected_slaves"]; n == "" || n == "0" || s.facts["role"] == "slave" {
		return
	}
	lag := int64(-1) // unknown
	if write := s.conf.values["min-replicas-to-write"]; write != "" {
		lag, _ = strconv.ParseInt(s.conf.values["min-replicas-max-lag"], 10, 64)
		if write == "0" {
			lag = 0
		}
	} else if s.facts["min_slaves_good_slaves"] == "" { // present if both are set
		lag = 0
	}
	fix := s.conf.fix(
		"Set min-replicas-to-write 1 and min-replicas-max-lag 10 on every server, or store.durability: wait1.",
		"Set store.durability: wait1, or min-replicas-to-write 1 if the service has that setting.")
	switch {
	case lag == 0:
		r.Add(Warning, "redis accepts writes while it is disconnected from its replicas: a failover loses those writes", fix)
	case lag > mostLag:
		r.Add(Warning, fmt.Sprintf("redis accepts writes for %d s while it is disconnected from its replicas", lag), fix)
	}
}

// Durability checks whether Redis supports what store.durability requires.
func (s *Server) Durability(r *Report, durability string) {
	switch {
	case durability == "async" || durability == "" || s.facts["connected_slaves"] == "":
	case s.facts["connected_slaves"] == "0":
		r.Add(Error, fmt.Sprintf("store.durability is %s and redis has no replica: every hold is refused", durability),
			"Connect a replica, or set store.durability: async.")
	case durability == "waitaof1" && older(s.facts["redis_version"], 7, 2):
		r.Add(Error, "store.durability is waitaof1, and redis is older than 7.2: every hold is refused",
			"Upgrade it, or set store.durability: wait1.")
	case durability == "waitaof1" && s.facts["aof_enabled"] == "0":
		r.Add(Error, "store.durability is waitaof1, and redis has no append-only file: every hold is refused",
			"Set appendonly yes on all servers.")
	}
}
