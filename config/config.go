// Package config reads llmguard's one YAML file into documented structs; the
// structs are the manual. It reads strictly and reports everything that is
// wrong at once, each with line, column and a way out. It opens no connection
// and checks nothing outside the file.
//
// Words used by all fields:
//
//   - Text may hold ${NAME} or ${NAME:-default} from the environment, also
//     where a number or a duration is expected; $$ stands for a single $.
//   - Money is "$5", "$0.25": US dollars, exact to nine places.
//   - Counts are 150000, 150_000, 150k or 2M.
//   - Durations are Go's, plus days: 300ms, 90s, 1h30m, 1d, 7d12h.
//   - Sizes are 500KB, 32MB (powers of 1000), 32MiB (of 1024) or plain bytes.
//   - Ids are 1 to 64 of a-z, 0-9, _ and -.
//   - Patterns are names in which * stands for any characters.
package config

import (
	"net/netip"
	"time"
)

// Config is the whole file. It is not changed after Parse; treat it as
// read-only when sharing it between goroutines.
type Config struct {
	// Listen is the address callers reach, host:port.
	Listen string `yaml:"listen" default:"127.0.0.1:8080" kind:"address"`
	// Admin is the listener for operators: health, metrics, administration.
	Admin Admin `yaml:"admin"`
	// Redis is where limits, jobs and the ledger live. Without it, `dev` brings
	// its own store; `serve` and `worker` refuse to start.
	Redis Redis `yaml:"redis"`
	// Auth says how callers' keys are hashed.
	Auth Auth `yaml:"auth"`
	// TrustedProxies are the addresses (10.0.0.7 or 10.0.0.0/8) whose
	// X-Forwarded-For is believed. Empty: nobody's is.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies"`
	// Requests bounds what one request may look like.
	Requests Requests `yaml:"requests"`
	// Timeouts of the listener callers reach, and of shutting down.
	Timeouts Timeouts `yaml:"timeouts"`
	// Store says what happens when Redis cannot be asked.
	Store Store `yaml:"store"`
	// KillSwitch overrides the modes of all limits at once. off: limits work as
	// written. shadow: they count and report, and nothing is refused or queued
	// because of them.
	KillSwitch string `yaml:"kill_switch" default:"off" enum:"off,shadow"`
	// UnknownModelPrice, when set, is the price of models the catalogue does
	// not know: an entry as under Prices, without model, provider, names and
	// prefixes. Make it dear, because it is what an unknown model is held and
	// charged at: {max_output: 128000, prices: [{input: 15, output: 75}]}.
	// Without max_output only requests that set an output limit are taken.
	// Left out: such a model is refused; it is never free.
	UnknownModelPrice Raw `yaml:"unknown_model_price" kind:"mapping"`
	// Prices are the operator's own price entries. They go before the built-in
	// catalogue. Their form is that of the catalogue's models; ${NAME} is not
	// filled in here.
	Prices Raw `yaml:"prices" kind:"list"`
	// Providers are the upstream accounts calls are sent to.
	Providers []Provider `yaml:"providers,required"`
	// Orgs are the tenants, with their limits, users and keys.
	Orgs []Org `yaml:"orgs,required"`
	// Ledger is the record of what every call was charged.
	Ledger Ledger `yaml:"ledger"`
	// Queue bounds the calls that wait.
	Queue Queue `yaml:"queue"`
	// Log is what is written to standard error.
	Log Log `yaml:"log"`

	// Name is the file's name as given to Load or Parse.
	Name string `yaml:"-"`
}

// Admin is the operators' listener. It never serves models, and the callers'
// listener never serves it.
type Admin struct {
	// Listen is host:port. Keep it off the internet.
	Listen string `yaml:"listen" default:"127.0.0.1:9090" kind:"address"`
}

// Redis names the store, either by addresses or by url.
type Redis struct {
	// Addresses are host:port, or one unix socket path. One for single, the
	// sentinels for sentinel, any of the nodes for cluster.
	Addresses []string `yaml:"addresses"`
	// URL is the short form for a single server:
	// redis://user:password@host:6379/0, rediss:// for TLS, unix:///path.
	// The other connection fields are then left out.
	URL Secret `yaml:"url"`
	// Mode is the kind of deployment.
	Mode string `yaml:"mode" default:"single" enum:"single,sentinel,cluster"`
	// MasterName is the name the sentinels know the primary by.
	MasterName string `yaml:"master_name"`
	// Username and Password log in to the server.
	Username string `yaml:"username"`
	Password Secret `yaml:"password"`
	// SentinelUsername and SentinelPassword log in to the sentinels.
	SentinelUsername string `yaml:"sentinel_username"`
	SentinelPassword Secret `yaml:"sentinel_password"`
	// TLS turns on encryption when enabled.
	TLS RedisTLS `yaml:"tls"`
	// DB is the database number; a cluster has only 0.
	DB int `yaml:"db" min:"0"`
}

// Configured reports whether the file names a store at all.
func (r Redis) Configured() bool { return len(r.Addresses) > 0 || r.URL != "" }

// RedisTLS is the encryption of connections to Redis, TLS 1.2 or newer.
type RedisTLS struct {
	Enabled bool `yaml:"enabled"`
	// CAFile is a PEM file of authorities to trust instead of the system's.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile are the client's own certificate.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the name the server's certificate must carry, when it is
	// not the host of the address.
	ServerName string `yaml:"server_name"`
}

// Auth holds the secrets that key hashes are bound to.
type Auth struct {
	// Peppers make stored hashes useless to whoever reads only the file or
	// only Redis. The first hashes new keys; the others still verify old ones.
	Peppers []Pepper `yaml:"peppers"`
}

// Pepper is one such secret.
type Pepper struct {
	// ID is written in front of each hash made with it; "sha256" is taken.
	ID string `yaml:"id,required" kind:"id"`
	// Secret is at least 16 characters, from the environment in production.
	Secret Secret `yaml:"secret,required"`
}

// Requests bounds a request before anything is spent on it; beyond a bound it
// is refused with 400 or 413.
type Requests struct {
	// MaxBody is the largest body.
	MaxBody Size `yaml:"max_body" default:"32MB"`
	// MaxDepth is the deepest nesting of JSON.
	MaxDepth int `yaml:"max_depth" default:"1000"`
	// MaxJSONTokens is how many JSON values, names and brackets a body may have.
	MaxJSONTokens int `yaml:"max_json_tokens" default:"200000"`
}

// Timeouts of the listener callers reach. Answers have no total timeout,
// because a stream may take as long as the provider does.
type Timeouts struct {
	// ReadHeader ends connections that do not send a request's head in time.
	ReadHeader time.Duration `yaml:"read_header" default:"10s"`
	// ReadBody ends requests whose body does not arrive in time.
	ReadBody time.Duration `yaml:"read_body" default:"60s"`
	// Write ends answers of which the caller takes no byte for so long.
	Write time.Duration `yaml:"write" default:"60s"`
	// Idle closes connections without a request.
	Idle time.Duration `yaml:"idle" default:"120s"`
	// Drain is how long a stopping process still accepts calls after it has
	// reported itself not ready, so that load balancers can notice.
	Drain time.Duration `yaml:"drain" default:"5s" min:"0"`
	// Shutdown is how long calls in flight may then go on. What is left is
	// cancelled and settled.
	Shutdown time.Duration `yaml:"shutdown" default:"30s"`
}

// Store is the behaviour towards Redis.
type Store struct {
	// OnFailure is what a call meets when Redis cannot be asked in time. deny:
	// 503 with Retry-After, so no money is spent unseen. (local and allow are
	// not built yet.)
	OnFailure string `yaml:"on_failure" default:"deny" enum:"deny"`
	// Deadline is how long one call waits for Redis before OnFailure applies.
	Deadline time.Duration `yaml:"deadline" default:"250ms"`
}

// Ledger says where the ledger's entries go. They are in Redis for up to 90 days
// after an org's last one, its daily sums for 400 days.
type Ledger struct {
	// ExportDir is a directory to which every entry is appended before it is
	// trimmed from Redis, once: a file of JSON lines per org and UTC day. All
	// processes may have it, one of them writes for an org; then it must be
	// the same directory for all, such as a shared mount that keeps locks.
	// Left out: nothing is exported.
	ExportDir string `yaml:"export_dir"`
	// MaxEntries is about how many entries of an org stay in Redis, at some
	// 700 bytes each. With ExportDir what is not exported yet stays too, up to
	// ten times as many: what a long failure of the disk can take.
	MaxEntries int64 `yaml:"max_entries" default:"1000000"`
}

// Queue bounds waiting, for all pools.
type Queue struct {
	// ResultTTL is how long a finished job and its result stay readable.
	ResultTTL time.Duration `yaml:"result_ttl" default:"1d"`
	// Lease is how long a job stays with a worker that has stopped answering.
	Lease time.Duration `yaml:"lease" default:"30s"`
	// Shutdown is how long a stopping worker lets its jobs go on before it
	// puts them back.
	Shutdown time.Duration `yaml:"shutdown" default:"30s"`
	// Hold is how long a plain (not streaming) caller's connection is kept
	// silent before it gets 429 with Retry-After. Node clients give up at 300 s
	// on their own.
	Hold time.Duration `yaml:"hold" default:"280s"`
	// KeepAlive is the pause between the newlines a waiting stream gets.
	KeepAlive time.Duration `yaml:"keep_alive" default:"15s"`
}

// Log is the log's level and form. Prompts, answers and keys are never logged.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug,info,warn,error"`
	Format string `yaml:"format" default:"json" enum:"json,text"`
}
