// Package config reads llmguard's one YAML file into documented structs; the
// structs are the manual. It reads strictly and reports everything that is
// wrong at once, each with line, column and a way out. It opens no connection,
// and reads nothing beside the file but the secrets that it points to.
//
// Words used by all fields:
//
//   - Text may hold ${NAME} or ${NAME:-default} from the environment, also
//     where a number or a duration is expected; $$ stands for a single $.
//   - A secret may be file:/run/secrets/NAME: the content of that file, without
//     the line break at its end. A relative path begins at the configuration's
//     directory, and file:${CREDENTIALS_DIRECTORY}/NAME takes systemd's.
//   - Money is "$5", "$0.25": US dollars, exact to nine places.
//   - Counts are 150000, 150_000, 150k or 2M.
//   - Durations are Go's, plus days: 300ms, 90s, 1h30m, 1d, 7d12h.
//   - Sizes are 500KB, 32MB (powers of 1000), 32MiB (of 1024) or plain bytes.
//   - Ids are 1 to 64 of a-z, 0-9, _ and -.
//   - Patterns are names in which * stands for any characters.
package config

import (
	_ "embed"
	"net/netip"
	"time"
)

// Config is the whole file. It is not changed after Parse; treat it as
// read-only when sharing it between goroutines.
type Config struct {
	// Listen is the address callers reach, host:port.
	Listen string `yaml:"listen" default:"127.0.0.1:8080" kind:"address" reload:"restart"`
	// TLS encrypts the listener callers reach.
	TLS TLS `yaml:"tls" reload:"restart"`
	// Admin is the listener for operators: health, metrics, administration.
	Admin Admin `yaml:"admin"`
	// Redis is where limits, jobs and the ledger live. Without it, `dev` brings
	// its own store; `serve` and `worker` refuse to start.
	Redis Redis `yaml:"redis" reload:"restart"`
	// Auth says how callers' keys are hashed.
	Auth Auth `yaml:"auth"`
	// TrustedProxies are the addresses (10.0.0.7 or 10.0.0.0/8) whose
	// X-Forwarded-For is believed, and X-Forwarded-Proto at the console. Empty: nobody's is.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies" reload:"restart"`
	// Requests bounds what one request may look like.
	Requests Requests `yaml:"requests" reload:"restart"`
	// Timeouts of the listener callers reach, and of shutting down.
	Timeouts Timeouts `yaml:"timeouts" reload:"restart"`
	// Connections bounds open connections.
	Connections Connections `yaml:"connections" reload:"restart"`
	// Memory bounds the bytes of bodies and answers under way.
	Memory Memory `yaml:"memory" reload:"restart"`
	// Store says what happens when Redis cannot be asked.
	Store Store `yaml:"store"`
	// KillSwitch overrides the modes of all limits and spend caps at once. off: limits work as
	// written. shadow: they count and report, and nothing is refused or queued
	// because of them.
	KillSwitch string `yaml:"kill_switch" default:"off" enum:"off,shadow"`
	// SpendCaps bound what all orgs together spend through this deployment, at
	// whichever provider.
	SpendCaps []SpendCap `yaml:"spend_caps"`
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
	// PricesFile is a file of more price entries, which `llmguard prices update`
	// writes. They override the built-in catalogue, and Prices overrides them. A relative
	// path is relative to the configuration file. While there is no such file it
	// has no entries.
	PricesFile string `yaml:"prices_file"`
	// Providers are the upstream accounts calls are sent to.
	Providers []Provider `yaml:"providers,required"`
	// Defaults apply to every org, of this file and of Redis, also to those made later.
	Defaults Defaults `yaml:"defaults"`
	// Orgs are the tenants, with their limits, users and keys.
	Orgs []Org `yaml:"orgs,required"`
	// Ledger is the record of what every call was charged.
	Ledger Ledger `yaml:"ledger" reload:"restart"`
	// Queue bounds the calls that wait.
	Queue Queue `yaml:"queue"`
	// Files are what callers upload and batches put out. Without a place for them
	// neither the Files nor the Batch API is served.
	Files Files `yaml:"files" reload:"restart"`
	// Batches bounds the Batch API.
	Batches Batches `yaml:"batches" reload:"restart"`
	// Conversations bounds what is kept of responses that no provider keeps.
	Conversations Conversations `yaml:"conversations"`
	// Alerts tell the operator that limits of orgs and users are nearly used up.
	Alerts Alerts `yaml:"alerts"`
	// Webhooks bounds what may be told to whom, for all orgs.
	Webhooks Webhooks `yaml:"webhooks" reload:"restart"`
	// Log is what is written to standard error.
	Log Log `yaml:"log"`
	// Tracing exports the spans of calls, to OpenTelemetry's conventions.
	Tracing Tracing `yaml:"tracing" reload:"restart"`

	// Name is the file's name as given to Load or Parse, Sum the SHA-256 of its text
	// (and of PricesFile, when that has prices).
	Name string   `yaml:"-"`
	Sum  [32]byte `yaml:"-"`
	// ListedPrices is the text of PricesFile.
	ListedPrices []byte `yaml:"-"`
	// Literals are the paths of secrets whose text is in the file itself, neither from the
	// environment nor in a file of its own.
	Literals []string `yaml:"-"`
}

// Admin is the operators' listener. It never serves models, and the callers'
// listener never serves it.
type Admin struct {
	// Listen is host:port. Keep it off the internet.
	Listen string `yaml:"listen" default:"127.0.0.1:9090" kind:"address" reload:"restart"`
	// TLS encrypts this listener, as that of callers.
	TLS TLS `yaml:"tls" reload:"restart"`
	// Hosts are further host names, or patterns, that requests may come for, such as
	// admin.example.com. Addresses, localhost, names without a dot, those of private
	// zones (.local, .internal, .svc, .home.arpa) and the host of Listen always may; with
	// "*" any name may. Others get 421: a web page could have them (DNS rebinding).
	// /healthz and /readyz answer to any name.
	Hosts []string `yaml:"hosts"`
	// MetricsToken, at least 16 characters, is what a scraper sends as
	// "Authorization: Bearer TOKEN" for /metrics. Left out: anybody who reaches the
	// listener may read the metrics, which name orgs, pools and limits.
	MetricsToken Secret `yaml:"metrics_token"`
	// Keys of administrators. They open the admin API and nothing else; more are
	// made with `llmguard admins create`.
	Keys []AdminKey `yaml:"keys"`
}

// TLS is the certificate of a listener, for TLS 1.2 and 1.3 with HTTP/2. The files are
// read again when they change, and at a reload of this file. Left out: plain HTTP.
type TLS struct {
	// CertFile is a PEM file with the certificate, then those between it and the root.
	CertFile string `yaml:"cert_file"`
	// KeyFile is a PEM file with its private key.
	KeyFile string `yaml:"key_file"`
}

// Enabled reports whether there is a certificate.
func (t TLS) Enabled() bool { return t.CertFile != "" }

// AdminKey is an administrator's key, known by its hash only.
type AdminKey struct {
	// ID names the administrator in the audit.
	ID string `yaml:"id,required" kind:"id"`
	// Hash is as that of a user's key.
	Hash string `yaml:"hash,required"`
	// ReadOnly keys change nothing.
	ReadOnly bool `yaml:"read_only"`
	// Disabled refuses the key without forgetting it.
	Disabled bool `yaml:"disabled"`
	// Expires is as that of a user's key.
	Expires time.Time `yaml:"expires"`
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

// Connections bounds the open connections of the listener callers reach. What
// comes beyond is closed without an answer.
type Connections struct {
	// Total is the most connections; 0: half of the file descriptors that the process
	// may open, and at most one for 96 KiB of the memory that it may use.
	Total int `yaml:"total" default:"0" min:"0"`
	// PerAddress is the most connections of one address; an IPv6 address counts as
	// its /64. 0: a quarter of Total. Addresses in TrustedProxies are bounded by Total
	// alone.
	PerAddress int `yaml:"per_address" default:"0" min:"0"`
	// Streams is how many event streams, uploads and downloads may be open at a time in
	// one process. An org may have half of them, one key a quarter. What comes beyond is
	// answered with 429. 0: no bound.
	Streams int `yaml:"streams" default:"2000" min:"0"`
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
	// OnFailure is what a live call meets when Redis cannot be asked in time,
	// for orgs that do not say otherwise. deny: 503 with Retry-After, so no
	// money is spent unseen. local: it is admitted if it fits into LocalShare of
	// every limit. allow: it is admitted. Calls that were admitted so are on
	// disk before they are sent, and charged when Redis is back; both need
	// JournalDir. Nothing waits meanwhile, and jobs do not run.
	OnFailure string `yaml:"on_failure" default:"deny" enum:"deny,local,allow"`
	// LocalShare is what one process lets through by itself while Redis is
	// away, of each limit of orgs with local, and of each pool's quota: 10%.
	// With at most 100% divided by the number of proxies, all of them together
	// let through no more than a limit; what was used before they do not know.
	LocalShare Percent `yaml:"local_share" default:"10%" reload:"restart"`
	// Deadline is how long one call waits for Redis before a ping asks whether
	// it answers at all. OnFailure applies when that is not answered either.
	Deadline time.Duration `yaml:"deadline" default:"250ms" reload:"restart"`
	// HoldLease is how long the money of a call stays held after its process
	// died; then it is charged in full, as an estimate. After a time in which no
	// process reached Redis, holds stay for this long once more. At least 3s. Give
	// all processes the same.
	HoldLease time.Duration `yaml:"hold_lease" default:"60s" reload:"restart"`
	// AfterDataLoss is what limits do when Redis was emptied or came back without
	// its data. close: each is closed for the length of its window, from that
	// moment, until `llmguard limits reopen`. open: they count from zero. With
	// JournalDir a loss during a restart of llmguard is noticed too.
	AfterDataLoss string `yaml:"after_data_loss" default:"close" enum:"close,open" reload:"restart"`
	// Durability is when a hold and the end of a call count as written. async: when
	// Redis answers; a failover may forget the last moments. wait1: when one replica
	// has it too (WAIT). waitaof1: when it is also in the append-only files of Redis
	// and of one replica, on disk (WAITAOF, Redis 7.2). Where no replica confirms
	// within half of Deadline, holds are refused and ends go to the journal, until
	// one does. Each flight to Redis takes a round trip between Redis and its replica
	// longer; waitaof1 up to a second unless both have appendfsync always. Not for a
	// cluster.
	Durability string `yaml:"durability" default:"async" enum:"async,wait1,waitaof1" reload:"restart"`
	// JournalDir is a directory on a disk that outlives the process, for what
	// cannot be written to Redis just now: ends of calls, and calls admitted
	// without it. It is made with mode 0700; processes may share it. Left out:
	// they are kept in memory, and calls whose process dies too are charged
	// what was held.
	JournalDir string `yaml:"journal_dir" reload:"restart"`
	// JournalMax bounds the journal of each process; one call takes about 1 KB.
	// The file may take twice as much.
	JournalMax Size `yaml:"journal_max" default:"64MiB" reload:"restart"`
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
	// MemoryShare is the part of Redis's maxmemory, in percent, that the entries of
	// all orgs may take together (without maxmemory: of the machine's memory). Beyond it
	// the oldest entries of the orgs with the most go, within ten seconds; day sums
	// stay, and with ExportDir the files. 100: no such bound.
	MemoryShare int `yaml:"memory_share" default:"40"`
}

// Log is the log's level and form. Prompts, answers and keys are never logged.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug,info,warn,error"`
	Format string `yaml:"format" default:"json" enum:"json,text" reload:"restart"`
}

//go:embed schema.json
var schema []byte

// Schema is the JSON Schema (draft 2020-12) of the file, for editors. It knows
// names, types and choices; what only Parse can see, it lets pass.
func Schema() []byte { return schema }
