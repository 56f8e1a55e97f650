// Package config reads llmguard's YAML file into documented structs; docs/config is
// generated from them. It reads strictly and reports all errors together, each with line,
// column and a fix. It opens no connection, and reads no other files than the secrets and
// prices that the file names.
//
// Words used by all fields:
//
//   - Text may contain ${NAME} or ${NAME:-default} from the environment, also for
//     numbers and durations; $$ is a single $.
//   - A secret may be file:/run/secrets/NAME: the content of that file without its last
//     line break. Relative paths start at the configuration's directory, and
//     file:${CREDENTIALS_DIRECTORY}/NAME reads systemd's credentials.
//   - Money is "$5", "$0.25": US dollars, exact to nine places.
//   - Counts are 150000, 150_000, 150k or 2M.
//   - Durations are Go's, plus days: 300ms, 90s, 1h30m, 1d, 7d12h.
//   - Sizes are 500KB, 32MB (powers of 1000), 32MiB (of 1024) or plain bytes.
//   - Ids are 1 to 64 of a-z, 0-9, _ and -.
//   - Patterns are names in which * matches any characters.
package config

import (
	_ "embed"
	"net/netip"
	"time"
)

// Config is the whole file. It is not changed after Parse; treat it as
// read-only when sharing it between goroutines.
type Config struct {
	// Listen is the address for callers.
	Listen string `yaml:"listen" default:"127.0.0.1:8080" kind:"address" reload:"restart"`
	// PublicURL is the API's address in links, such as https://llm.example.com. If omitted, links are paths.
	PublicURL string `yaml:"public_url" kind:"URL"`
	// TLS encrypts the callers' listener.
	TLS   TLS   `yaml:"tls" reload:"restart"`
	Admin Admin `yaml:"admin"`
	// Redis stores limits, jobs and the ledger. Only `dev` can run without it.
	Redis Redis `yaml:"redis" reload:"restart"`
	Auth  Auth  `yaml:"auth"`
	// TrustedProxies are the addresses (10.0.0.7 or 10.0.0.0/8) whose X-Forwarded-For, else Forwarded, is trusted,
	// and X-Forwarded-Proto at the console.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies" reload:"restart"`
	// CORSOrigins are the origins, such as https://app.example.com, of web pages that may call; "*" allows all.
	// Everyone who opens a page can read its key.
	CORSOrigins []string `yaml:"cors_origins" reload:"restart" kind:"origin"`
	Requests    Requests `yaml:"requests" reload:"restart"`
	Timeouts    Timeouts `yaml:"timeouts" reload:"restart"`
	// Headers report limits and when to retry.
	Headers     Headers     `yaml:"headers"`
	Connections Connections `yaml:"connections" reload:"restart"`
	// Memory is for bodies and answers in flight.
	Memory Memory `yaml:"memory" reload:"restart"`
	// Store is for outages of Redis.
	Store Store `yaml:"store"`
	// KillSwitch overrides the modes of all limits and spend caps. off: limits work as configured. shadow: they only
	// count and report. stop: all spending stops as with `llmguard stop`, in processes that have loaded this file.
	KillSwitch string `yaml:"kill_switch" default:"off" enum:"off,shadow,stop"`
	// SpendCaps bound what all orgs spend, at all providers.
	SpendCaps []SpendCap `yaml:"spend_caps" range:"..50 spend caps"`
	// RequestLimits limit how many requests callers may send, next to the fixed limits on free requests.
	RequestLimits []RequestLimit `yaml:"request_limits" range:"..50 request limits"`
	// UnknownModelPrice is the price of models that have none: an entry as under Prices, with prices only. If
	// omitted, they are refused.
	UnknownModelPrice Raw `yaml:"unknown_model_price" kind:"mapping"`
	// Prices are your own prices, which override the built-in catalogue: see docs/prices.md. ${NAME} is not expanded
	// here.
	Prices Raw `yaml:"prices" kind:"list"`
	// PricesFile is a file of `llmguard prices update`, between Prices and the catalogue. It may be missing.
	PricesFile string     `yaml:"prices_file"`
	Providers  []Provider `yaml:"providers,required" range:"1.."`
	// Labels are dimensions of calls. The word agents, as the list or an element of it, defines the labels of coding
	// agents.
	Labels []Label `yaml:"labels" range:"..8 labels" kind:"labels"`
	// Brakes stop runs, users or keys that run wild, in every org, at most 8 in one.
	Brakes []Brake `yaml:"brakes"`
	// Defaults apply to every org.
	Defaults Defaults `yaml:"defaults"`
	Orgs     []Org    `yaml:"orgs,required" range:"1.." why:"because keys belong to an org's users"`
	Ledger   Ledger   `yaml:"ledger" reload:"restart"`
	Finance  Finance  `yaml:"finance"`
	Queue    Queue    `yaml:"queue"`
	// Files stores uploads and batch results. Without it, neither is served.
	Files         Files         `yaml:"files" reload:"restart"`
	Cache         AnswerStore   `yaml:"cache" reload:"restart"`
	Batches       Batches       `yaml:"batches" reload:"restart"`
	Conversations Conversations `yaml:"conversations"`
	// Alerts notify the operator.
	Alerts   Alerts   `yaml:"alerts"`
	Webhooks Webhooks `yaml:"webhooks" reload:"restart"`
	Log      Log      `yaml:"log"`
	Tracing  Tracing  `yaml:"tracing" reload:"restart"`

	// Name is the file's name as passed to Load or Parse, Sum the SHA-256 of its text (and of
	// PricesFile, if it contains prices).
	Name string   `yaml:"-"`
	Sum  [32]byte `yaml:"-"`
	// ListedPrices is the text of PricesFile.
	ListedPrices []byte `yaml:"-"`
	// Literals are the paths of secrets whose text is in the file itself, rather than in the
	// environment or in separate files.
	Literals []string `yaml:"-"`

	// Unset has, by path, why LoadOperator or LoadPolicy replaced a value by a placeholder.
	Unset map[string]string `yaml:"-"`
	// Unusable has, by path, why no provider can accept a credential that LoadOperator or LoadPolicy left as it is.
	Unusable map[string]string `yaml:"-"`

	lines map[string]int `yaml:"-"` // of limits, by path
}

// Admin is the operators' listener, which never serves models.
type Admin struct {
	// Listen must be off the internet.
	Listen string `yaml:"listen" default:"127.0.0.1:9090" kind:"address" reload:"restart"`
	TLS    TLS    `yaml:"tls" reload:"restart"`
	// Hosts are more host names or patterns that requests may use, such as admin.example.com; "*" allows every name.
	// Addresses, localhost, names without a dot, private zones (.local, .internal, .svc, .home.arpa) and the host of
	// Listen are always allowed. Others get 421, except at /healthz and /readyz.
	Hosts []string `yaml:"hosts"`
	// PublicURL is this listener's address in links to the console. If omitted, messages name commands instead.
	PublicURL string `yaml:"public_url" reload:"restart" kind:"URL"`
	// MetricsToken protects /metrics, which names orgs, pools and limits. Scrapers send it as "Authorization: Bearer
	// TOKEN".
	MetricsToken Secret `yaml:"metrics_token" range:"16.. characters"`
	// Keys of administrators open only the admin API. `llmguard admins create` creates more.
	Keys []AdminKey `yaml:"keys"`
}

// TLS is a listener's certificate, for TLS 1.2 and 1.3 with HTTP/2. The files are read again when they change.
// Default: plain HTTP.
type TLS struct {
	// CertFile is a PEM file with the certificate and its intermediates, KeyFile one with the private key.
	CertFile string `yaml:"cert_file" needs:"key_file"`
	KeyFile  string `yaml:"key_file" needs:"cert_file"`
}

// Enabled reports whether there is a certificate.
func (t TLS) Enabled() bool { return t.CertFile != "" }

// AdminKey is an administrator's key, known by its hash only.
type AdminKey struct {
	// ID is the administrator's name in the audit.
	ID string `yaml:"id,required" kind:"id" unique:"list"`
	// Hash has the form of a user key's hash, and Expires of its expiry.
	Hash     string    `yaml:"hash,required"`
	Expires  time.Time `yaml:"expires"`
	ReadOnly bool      `yaml:"read_only"`
	// Disabled rejects the key but keeps its entry.
	Disabled bool `yaml:"disabled"`
}

// Redis is the connection to Redis: addresses or url.
type Redis struct {
	// Addresses are the servers as host:port, or one unix socket path. For sentinel, the sentinels; for cluster, any
	// nodes.
	Addresses []string `yaml:"addresses" excludes:"url"`
	// URL is for a single server: redis://user:password@host:6379/0, rediss:// for TLS, unix:///path.
	URL  Secret `yaml:"url" why:"which already sets it"`
	Mode string `yaml:"mode" default:"single" enum:"single,sentinel,cluster"`
	// MasterName is the primary's at the sentinels.
	MasterName string `yaml:"master_name" needs:"mode=sentinel" excludes:"url"`
	// Username and Password log in to the server.
	Username string `yaml:"username" excludes:"url"`
	Password Secret `yaml:"password" excludes:"url"`
	// SentinelUsername and SentinelPassword log in to the sentinels.
	SentinelUsername string   `yaml:"sentinel_username"`
	SentinelPassword Secret   `yaml:"sentinel_password"`
	TLS              RedisTLS `yaml:"tls" excludes:"url"`
	// DB is the database number; a cluster has only 0.
	DB int `yaml:"db" min:"0" excludes:"url"`
	// Prefix precedes every key and channel, such as staging:, so that deployments can share a Redis. At most 32
	// letters, digits and _ - . : /.
	Prefix string `yaml:"prefix" min:"0" kind:"key prefix"`
}

// Configured reports whether the file has a Redis server.
func (r Redis) Configured() bool { return len(r.Addresses) > 0 || r.URL != "" }

// RedisTLS encrypts connections to Redis, with TLS 1.2 or newer.
type RedisTLS struct {
	Enabled bool `yaml:"enabled"`
	// CAFile is a PEM file of authorities, in place of the system's.
	CAFile string `yaml:"ca_file" needs:"enabled=true"`
	// CertFile and KeyFile are the client certificate.
	CertFile string `yaml:"cert_file" needs:"enabled=true,key_file"`
	KeyFile  string `yaml:"key_file" needs:"enabled=true,cert_file"`
	// ServerName is the name in the server's certificate, if it is not the host.
	ServerName string `yaml:"server_name" needs:"enabled=true"`
}

// Auth is the secrets that key hashes depend on.
type Auth struct {
	// Peppers make stored hashes useless to anyone who has only the file or only Redis. The first hashes new keys;
	// the others still verify.
	Peppers []Pepper `yaml:"peppers"`
}

// Pepper is one secret.
type Pepper struct {
	// ID is the prefix of each hash made with it. "sha256" is reserved.
	ID string `yaml:"id,required" kind:"id" unique:"list"`
	// Secret is made with openssl rand -hex 32.
	Secret Secret `yaml:"secret,required" range:"16.. characters"`
}

// Requests are limits for one request. Larger ones get 400 or 413.
type Requests struct {
	// MaxBody is the size of the largest body, MaxDepth its deepest nesting of JSON, and MaxJSONTokens its largest
	// number of values, names and brackets.
	MaxBody       Size `yaml:"max_body" default:"32MB"`
	MaxDepth      int  `yaml:"max_depth" default:"1000"`
	MaxJSONTokens int  `yaml:"max_json_tokens" default:"200000"`
}

// Headers is how answers report limits and when to retry.
type Headers struct {
	// Standard is the form for clients that do not know llmguard: X-RateLimit-*, RateLimit of the IETF draft, both or
	// none. See docs/wire.md.
	Standard string `yaml:"standard" default:"x" enum:"x,ietf,both,off"`
	// RetryJitter is how much too late a Retry-After may be, at random: 1% to 100% of the wait. See docs/errors.md.
	RetryJitter PercentOrOff `yaml:"retry_jitter" default:"10%" min:"0"`
}

// Connections are limits on connections to the callers' listener. More are closed without an answer.
type Connections struct {
	// Total is for all addresses. 0: half of the process's file descriptors, at most one for each 96 KiB of its
	// memory.
	Total int `yaml:"total" default:"0" min:"0"`
	// PerAddress is for one address, except trusted proxies. 0: a quarter of Total.
	PerAddress int `yaml:"per_address" default:"0" min:"0"`
	// IPv6Prefix is how many bits of an IPv6 address count as one address.
	IPv6Prefix int `yaml:"ipv6_prefix" default:"64" range:"1..128 bits"`
	// Streams is how many event streams, WebSockets, uploads and downloads may be open in one process; in an org
	// half, with one key a quarter. More get 429. 0: no limit.
	Streams int `yaml:"streams" default:"2000" min:"0"`
}

// Timeouts are for the callers' listener and for shutting down. Answers have no total timeout.
type Timeouts struct {
	// ReadHeader and ReadBody limit the time to send a request's headers and body.
	ReadHeader time.Duration `yaml:"read_header" default:"10s"`
	ReadBody   time.Duration `yaml:"read_body" default:"60s"`
	// Write ends an answer of which the caller reads no byte for this long.
	Write time.Duration `yaml:"write" default:"60s"`
	// Idle closes connections without requests.
	Idle time.Duration `yaml:"idle" default:"120s"`
	// Drain is how long a stopping process still accepts calls after it has reported not ready.
	Drain time.Duration `yaml:"drain" default:"5s" min:"0"`
	// Shutdown is how long calls in flight may then continue.
	Shutdown time.Duration `yaml:"shutdown" default:"30s"`
}

// Store is what happens when Redis is slow, unreachable or has lost data.
type Store struct {
	// OnFailure is what happens to live calls while Redis is unreachable, unless the org sets its own. local and
	// allow need JournalDir. See docs/operations.md.
	OnFailure string `yaml:"on_failure" default:"deny" enum:"deny,local,allow"`
	// LocalShare is how much of each limit and pool quota one process admits with local: at most 100% divided by the
	// number of proxies.
	LocalShare Percent `yaml:"local_share" default:"10%" reload:"restart"`
	// Deadline is how long a call waits for Redis before llmguard sends a ping. If that is not answered either,
	// OnFailure applies.
	Deadline time.Duration `yaml:"deadline" default:"250ms" reload:"restart"`
	// HoldLease is how long a call's money stays held after its process died. Then it is charged in full, as an
	// estimate. All processes need the same.
	HoldLease time.Duration `yaml:"hold_lease" default:"60s" reload:"restart" range:"3s.."`
	// AfterDataLoss is what limits do when Redis has lost its data: close for the length of their windows, or open
	// and count from zero. See docs/operations.md.
	AfterDataLoss string `yaml:"after_data_loss" default:"close" enum:"close,open" reload:"restart"`
	// Durability is when a hold or a charge counts as written. Clusters have only async. See docs/scaling.md.
	Durability string `yaml:"durability" default:"async" enum:"async,wait1,waitaof1" reload:"restart"`
	// JournalDir is a directory on a persistent disk for charges that cannot be written to Redis, and for calls
	// admitted without it. See docs/operations.md.
	JournalDir string `yaml:"journal_dir" reload:"restart"`
	// JournalMax is the largest journal of one process, at about 1 KB a call.
	JournalMax Size `yaml:"journal_max" default:"64MiB" reload:"restart"`
}

// Ledger is the storage of the ledger. Redis keeps entries until 90 days after an org's last one, and daily sums for
// 400 days.
type Ledger struct {
	// ExportDir is a directory to which every entry is appended before it is trimmed from Redis, the same for all
	// processes, on a shared mount with working locks. Default: no export.
	ExportDir string `yaml:"export_dir"`
	// MaxEntries is about how many entries of an org, and of each part of a spread org, stay in Redis, at about 700
	// bytes each; up to ten times as many until they are exported.
	MaxEntries int64 `yaml:"max_entries" default:"1000000"`
	// MemoryShare is the percentage of Redis's maxmemory (or of the machine's memory) for all ledgers. Beyond it, the
	// oldest entries of the largest ledgers are trimmed. 100: no limit.
	MemoryShare int `yaml:"memory_share" default:"40" range:"1..100 percent"`
}

// Log is the log on standard error. Prompts, answers and keys are never logged.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug,info,warn,error"`
	Format string `yaml:"format" default:"json" enum:"json,text" reload:"restart"`
}

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of the file, for editors. It describes names,
// types and choices; everything else is checked only by Parse.
func Schema() []byte { return schema }
