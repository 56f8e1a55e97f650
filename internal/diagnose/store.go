package diagnose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/outage"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
)

// mostSkew is the maximum clock difference that is not reported.
const mostSkew = time.Second

// Facts are the fields of Redis INFO, by name.
type Facts map[string]string

// Server is a Redis that answered.
type Server struct {
	rdb   redisconn.DB
	facts Facts
	conf  settings
}

// AskRedis reads what a Redis reports about itself; it returns nil, and reports why, if it does not answer.
func AskRedis(ctx context.Context, rdb redisconn.DB, r *Report) *Server {
	info, err := rdb.Info(ctx).Result() // several sections in one command require 7.0
	if err != nil {
		what := fmt.Sprintf("redis does not answer: %v", err)
		if denies(err) {
			what = fmt.Sprintf("redis does not allow INFO, which shows memory and failovers: %v", err)
		}
		r.Add(Error, what, RedisFix(err))
		return nil
	}
	return server(ctx, rdb, parseInfo(info))
}

// server returns the Server with given facts, to which it adds what only CONFIG shows.
func server(ctx context.Context, rdb redisconn.DB, facts Facts) *Server {
	s := &Server{rdb, facts, readSettings(ctx, rdb)}
	s.conf.complete(facts)
	return s
}

// denies reports whether the server understood a command and refused it.
func denies(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "NOPERM") || strings.HasPrefix(text, "ERR unknown command")
}

// RedisFix returns what to do about an error of connecting to Redis.
func RedisFix(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"):
		return "Set redis.password (and redis.username) to what the server expects."
	case strings.Contains(text, "NOPERM"):
		return "Allow the ACL user to run INFO in addition to the data commands."
	case strings.Contains(text, "connection refused"):
		return "Check that it is running there: run `redis-cli -h HOST -p PORT ping` on this machine."
	case strings.Contains(text, "no such host"):
		return "Check the host name and the DNS settings of this machine."
	case strings.Contains(text, "certificate"):
		return "Set redis.tls.ca_file to the authority that signed the server's certificate, and redis.tls.server_name " +
			"if the certificate has another name."
	case strings.Contains(text, "DB index"):
		return "Set redis.db, or the number at the end of redis.url, to a database that the server has, such as 0."
	case strings.Contains(text, "cluster support disabled"), strings.Contains(text, "'sentinel'"):
		return "Set redis.mode: single, or redis.addresses to the servers of that mode (Sentinel's port is 26379)."
	case strings.Contains(text, "HTTP/"):
		return "Another service listens there. Set redis.addresses to the port of Redis, usually 6379."
	}
	return "Check that it is running and that this machine can reach it. If the server uses TLS, set " +
		"redis.tls.enabled or rediss://; if it does not, leave them out."
}

// Condition checks for what makes a store slow or fragile. deadline is how long a call waits
// for it.
func (s *Server) Condition(ctx context.Context, r *Report, deadline time.Duration) {
	name, version := s.program()
	if since := patchedSince(name, version); since != "" {
		r.Add(Warning, fmt.Sprintf("%s %s lacks the fix for CVE-2025-49844: clients that can run scripts can run any "+
			"code", name, version), fmt.Sprintf("Upgrade to %s or newer, and keep other clients off it.", since))
	}
	if s.facts["role"] == "slave" {
		r.Add(Error, "this redis is a replica: it accepts no writes",
			"Set redis.addresses to the primary, or use mode: sentinel.")
	}
	if s.facts["aof_enabled"] == "1" && s.facts["aof_last_write_status"] == "err" {
		r.Add(Error, "redis cannot write its append-only file", "Check its disk and its log.")
	}
	if s.facts["loading"] == "1" {
		r.Add(Error, "redis is still loading its data", "Wait until it has finished.")
	}
	var major int
	if n, _ := fmt.Sscanf(version, "%d.", &major); n == 1 && major > newest[name] {
		r.Add(Warning, fmt.Sprintf("%s %s is newer than this llmguard, which was tested with %s up to %d", name, version,
			name, newest[name]), "Update llmguard, or test it with this server first.")
	}
	s.memory(ctx, r)
	if s.facts["run_id"] == "" && s.facts["master_replid"] == "" {
		r.Add(Warning, "redis does not report its run id (INFO server, INFO replication): a failover is not noticed, and "+
			"charges that it loses are not written again", "Use a service that reports it, or set store.durability: wait1.")
	}
	if s.conf.denied {
		r.Add(OK, "redis has no CONFIG, as usual for a managed service: compare its appendfsync and min-replicas-to-write "+
			"with the documentation yourself", "")
	}
	s.latency(ctx, r, deadline)
}

func (s *Server) memory(ctx context.Context, r *Report) {
	used, _ := strconv.ParseInt(s.facts["used_memory"], 10, 64)
	most, _ := strconv.ParseInt(s.facts["maxmemory"], 10, 64)
	switch {
	case s.facts["used_memory"] == "":
		r.Add(Warning, "redis does not report its memory (INFO memory): queue.memory_share and ledger.memory_share have no "+
			"effect", "Alert on its memory in the service, and set ledger.max_entries and queue.result_ttl so that it suffices.")
	case most == 0:
		r.Add(Warning, "redis has no maxmemory: it grows until the machine runs out of memory",
			"Set maxmemory below the machine's memory, and alert well before it is reached.")
	case used >= most:
		r.Add(Error, fmt.Sprintf("redis has no memory left (%d of %d bytes): calls get 503 store_full%s", used, most,
			mostCounted(ctx, s.rdb)),
			"Raise maxmemory. What frees memory still works: end runs, cancel jobs, delete files, disable or purge "+
				"orgs. `llmguard doctor --keys` shows what takes the memory.")
	case used*100/most >= 80:
		r.Add(Warning, fmt.Sprintf("redis uses %d %% of its maxmemory; no jobs are accepted beyond queue.memory_share%s",
			used*100/most, mostCounted(ctx, s.rdb)), "Raise maxmemory, or lower queue.result_ttl and ledger.max_entries.")
	}
}

// latency checks how fast it answers, and says so.
func (s *Server) latency(ctx context.Context, r *Report, deadline time.Duration) {
	name, version := s.program()
	const closer = "Move it closer to llmguard, and check SLOWLOG GET."
	middle, most, err := pings(ctx, s.rdb)
	switch {
	case err != nil:
		r.Add(Error, fmt.Sprintf("redis does not answer: %v", err), RedisFix(err))
	case middle > deadline/2:
		r.Add(Error, fmt.Sprintf("redis takes %s to answer: each call makes two requests, and is refused if one takes "+
			"longer than store.deadline (%s)", middle, deadline), closer)
	case middle > deadline/10:
		r.Add(Warning, fmt.Sprintf("redis takes %s to answer; each call waits for two answers", middle), closer)
	default:
		r.Add(OK, fmt.Sprintf("%s %s answers in %s (slowest of %d: %s)", name, cmp.Or(version, "of unknown version"),
			middle, looks, most), "")
	}
}

// mostCounted names the org whose callers keep most in Redis; empty if none keeps anything.
func mostCounted(ctx context.Context, rdb redisconn.DB) string {
	org, bytes, err := capacity.Largest(ctx, rdb)
	if err != nil || bytes == 0 {
		return ""
	}
	return fmt.Sprintf("; callers of org %s keep most in it, %d bytes", org, bytes)
}

const looks = 20

func pings(ctx context.Context, rdb redisconn.DB) (middle, most time.Duration, err error) {
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

// newest is the newest tested major version of each program.
var newest = map[string]int{"redis": 8, "valkey": 9}

// program returns which server it is, and its version. Valkey has a redis_version too, for old
// clients.
func (s *Server) program() (name, version string) {
	if v := s.facts["valkey_version"]; v != "" {
		return "valkey", v
	}
	return "redis", s.facts["redis_version"]
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
func storeSkew(ctx context.Context, rdb redisconn.DB) (time.Duration, bool) {
	asked := time.Now()
	there, err := rdb.Time(ctx).Result()
	if err != nil {
		return 0, false
	}
	return outage.ClockSkew(asked, time.Now(), there), true
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

func older(version string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(version, "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a < major || (a == major && b < minor)
}

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
