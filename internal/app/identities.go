package app

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/internal/tenants"
)

// Identities are the orgs, users and keys in force: those of the file with the
// records in Redis over them, field by field. It is safe for concurrent use.
type Identities struct {
	Store *tenants.Store
	log   *slog.Logger
	put   func(*guard.Policy, *auth.Directory, map[string]int) // hands out a new state

	mu     sync.Mutex
	cfg    *config.Config
	base   *settings       // of cfg
	ruling *config.Config  // cfg, with the records of all orgs over its defaults
	all    *tenants.Tenant // those records
	orgs   map[string]*madeOrg
	merged []config.Org

	current *guard.Policy
}

// madeOrg is an org and what it was made from.
type madeOrg struct {
	file   *config.Org // nil: only in Redis
	record *tenants.Tenant
	cfg    *config.Config // with the defaults
	org    config.Org
	*tenant
}

func newIdentities(store *tenants.Store, cfg *config.Config, base *settings, log *slog.Logger) *Identities {
	return &Identities{Store: store, log: log, cfg: cfg, base: base, ruling: cfg, orgs: map[string]*madeOrg{}}
}

// run hands out changes until ctx ends.
func (i *Identities) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-i.Store.Changed():
			i.Update()
		}
	}
}

// setFile replaces the file's part.
func (i *Identities) setFile(cfg *config.Config, base *settings) {
	i.mu.Lock()
	i.cfg, i.base, i.ruling, i.all, i.orgs = cfg, base, cfg, nil, map[string]*madeOrg{}
	i.mu.Unlock()
	i.Update()
}

// Missed looks for keys that are newer than what is known.
func (i *Identities) Missed(ctx context.Context) bool {
	if !i.Store.Missed(ctx) {
		return false
	}
	i.Update()
	return true
}

// orgIDs lists the orgs in force.
func (i *Identities) orgIDs() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := make([]string, len(i.merged))
	for n := range i.merged {
		out[n] = i.merged[n].ID
	}
	return out
}

// Effective is the file's configuration with the orgs in force. Nobody changes it.
func (i *Identities) Effective() *config.Config {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := *i.ruling
	c.Orgs = i.merged
	return &c
}

// Update puts the state together anew, as far as it changed, and hands it out. An
// org whose records do not go with the file stays as it was last; one that never
// was is the file's alone.
func (i *Identities) Update() {
	i.mu.Lock()
	defer i.mu.Unlock()
	snap := i.Store.Snapshot()
	if all := snap.Tenants[tenants.AllOrgs]; all != i.all {
		i.ruling, i.all = i.withDefaults(all), all
	}
	made := i.assemble(snap)
	policy, directory, weights := *i.base.policy, auth.Directory{Peppers: i.base.directory.Peppers}, map[string]int{}
	policy.Orgs, directory.ByHash = make(map[string]*guard.Org, len(made)), make(map[string]auth.Principal, len(made))
	i.merged = make([]config.Org, 0, len(made))
	for _, id := range slices.Sorted(maps.Keys(made)) {
		one := made[id]
		policy.Orgs[id] = one.tenant.org
		maps.Copy(directory.ByHash, one.keys)
		maps.Copy(weights, one.weights)
		i.merged = append(i.merged, one.org)
	}
	i.orgs, i.current = made, &policy
	if i.put != nil {
		i.put(&policy, &directory, weights)
	}
}

func (i *Identities) assemble(snap *tenants.Snapshot) map[string]*madeOrg {
	made := make(map[string]*madeOrg, len(i.cfg.Orgs)+len(snap.Tenants))
	for n := range i.cfg.Orgs {
		o := &i.cfg.Orgs[n]
		made[o.ID] = i.make(o.ID, o, snap.Tenants[o.ID])
	}
	for id, record := range snap.Tenants {
		if _, done := made[id]; !done && record.Org != nil {
			made[id] = i.make(id, nil, record)
		}
	}
	maps.DeleteFunc(made, func(_ string, m *madeOrg) bool { return m == nil })
	return made
}

// make returns an org, the one there is when nothing of it changed.
func (i *Identities) make(id string, file *config.Org, record *tenants.Tenant) *madeOrg {
	old := i.orgs[id]
	if old != nil && old.file == file && old.record == record && old.cfg == i.ruling {
		return old
	}
	made, err := i.makeOrg(i.ruling, id, file, record)
	if err == nil {
		for provider, own := range made.tenant.org.Credentials {
			if own == "" {
				i.log.Error("an org's own credential cannot be read, so its calls there fail: queue.seal_keys lacks the key "+
					"that sealed it", "org", id, "provider", provider)
			}
		}
		return made
	}
	i.log.Error("the records of an org do not go with the configuration; it stays as it was", "org", id, "err", err)
	if old != nil || file == nil {
		return old
	}
	made, err = i.makeOrg(i.ruling, id, file, nil)
	if err != nil {
		made, _ = i.makeOrg(i.cfg, id, file, nil) // the file was checked
	}
	return made
}

// makeOrg is makeOrg, with a look at an org of the file under defaults that the file does not have.
func (i *Identities) makeOrg(cfg *config.Config, id string, file *config.Org,
	record *tenants.Tenant,
) (*madeOrg, error) {
	made, err := makeOrg(cfg, i.base.seal, id, file, record)
	if err == nil && record == nil && cfg != i.cfg {
		err = cfg.CheckOrg(&made.org)
	}
	return made, err
}

// makeOrg puts an org's records over the file's org.
func makeOrg(cfg *config.Config, ring *seal.Ring, id string, file *config.Org,
	record *tenants.Tenant,
) (*madeOrg, error) {
	org := cfg.NewOrg(id)
	if file != nil {
		org = *file
		org.Limits, org.Users = slices.Clone(file.Limits), slices.Clone(file.Users)
	}
	var previous []proxyKey
	if record != nil {
		var err error
		previous, err = overlay(&org, record, cfg.Defaults.Limits)
		if err != nil {
			return nil, err
		}
		if err := cfg.CheckOrg(&org); err != nil {
			return nil, err
		}
	}
	t, err := tenantOf(cfg, &org)
	if err != nil {
		return nil, err
	}
	if record != nil {
		raise(t.org, record.Overrides)
		t.org.Credentials = credentials(id, record.Credentials, ring)
	}
	for _, old := range previous {
		if p, ok := t.keys[old.now]; ok {
			if p.Expires.IsZero() || old.until.Before(p.Expires) {
				p.Expires = old.until
			}
			t.keys[old.hash] = p
		}
	}
	return &madeOrg{file, record, cfg, org, t}, nil
}

// CheckOrg reports whether an org would be sound with these records; of all orgs, whether
// each would.
func (i *Identities) CheckOrg(id string, record *tenants.Tenant) error {
	if id == tenants.AllOrgs {
		return i.checkAll(record)
	}
	_, err := i.MergeOrg(id, record)
	return err
}

// MergeOrg returns an org with these records over what the file has of it.
func (i *Identities) MergeOrg(id string, record *tenants.Tenant) (*config.Org, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	at := slices.IndexFunc(i.cfg.Orgs, func(o config.Org) bool { return o.ID == id })
	var file *config.Org
	if at >= 0 {
		file = &i.cfg.Orgs[at]
	}
	if file == nil && (record == nil || record.Org == nil) {
		return nil, errNoOrg
	}
	made, err := i.makeOrg(i.ruling, id, file, record)
	if err != nil {
		return nil, err
	}
	return &made.org, nil
}

// openIdentities reads the records of identities. When Redis does not give them the
// file's stand until it does.
func (a *App) openIdentities(set *settings) {
	a.identity = tenants.New(a.rdb, tenants.Options{Log: a.log})
	ctx, cancel := context.WithTimeout(context.Background(), loadTime) //nolint:forbidigo // it is nobody's call
	defer cancel()
	if err := a.identity.Load(ctx); err != nil {
		a.log.Warn("identities cannot be read; those of the file stand until they can", "err", err)
	}
	a.ids = newIdentities(a.identity, a.cfg, set, a.log)
	a.ids.Update()
}

// loadTime bounds reading all records at start.
const loadTime = 30 * time.Second

// obey makes a state of the identities the one in force.
func (a *App) obey(p *guard.Policy, d *auth.Directory, weights map[string]int) {
	if err := a.queue.AddOwn(p.OwnPools()...); err != nil {
		a.log.Error("pools of orgs with credentials of their own cannot be added", "err", err)
	}
	before := a.guard.Policy()
	a.guard.SetPolicy(p)
	if a.worker != nil {
		a.wake(changedOrgs(before, p))
	}
	if a.callers != nil {
		a.callers.SetDirectory(d)
	}
	if err := a.queue.SetWeights(weights); err != nil {
		a.log.Error("weights of the queue cannot be set", "err", err)
	}
	select {
	case a.limitsChanged <- struct{}{}:
	default:
	}
}

// Policy is the policy in force.
func (i *Identities) Policy() *guard.Policy {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current
}

// Ring is the key ring that credentials are sealed with.
func (i *Identities) Ring() *seal.Ring {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.base.seal
}

// File is the configuration without the records in Redis.
func (i *Identities) File() *config.Config {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cfg
}

// Refresh reads what changed of the records, where nothing follows the changes.
func (i *Identities) Refresh(ctx context.Context) error {
	before := i.Store.Snapshot()
	if err := i.Store.Refresh(ctx); err != nil {
		return err
	}
	if i.Store.Snapshot() != before {
		i.Update()
	}
	return nil
}

// Effective returns a configuration with the orgs in force.
func Effective(ctx context.Context, cfg *config.Config, rdb redis.UniversalClient,
	log *slog.Logger,
) (*config.Config, error) {
	ids, err := LoadIdentities(ctx, cfg, rdb, log)
	if err != nil {
		return nil, err
	}
	return ids.Effective(), nil
}

// LoadIdentities returns the identities of a configuration as they are now, for commands on
// this machine. Refresh keeps it up to date.
func LoadIdentities(ctx context.Context, cfg *config.Config, rdb redis.UniversalClient,
	log *slog.Logger,
) (*Identities, error) {
	set, err := convert(cfg)
	if err != nil {
		return nil, err
	}
	store := tenants.New(rdb, tenants.Options{Log: log})
	if err := store.Load(ctx); err != nil {
		return nil, err
	}
	ids := newIdentities(store, cfg, set, log)
	ids.Update()
	return ids, nil
}

// changedOrgs are those whose limits or settings may be others now.
func changedOrgs(before, now *guard.Policy) map[string]bool {
	out := map[string]bool{}
	for id, org := range now.Orgs {
		if before == nil || before.Orgs[id] != org {
			out[id] = true
		}
	}
	return out
}

// wake has [App.unpark] wake the jobs of these orgs.
func (a *App) wake(orgs map[string]bool) {
	if len(orgs) == 0 {
		return
	}
	select {
	case a.changed <- orgs:
	default: // they wake on their own
	}
}

// unpark lets the jobs of orgs whose limits changed try them again, until ctx ends.
func (a *App) unpark(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case orgs := <-a.changed:
			if err := a.queue.Unpark(ctx, orgs); err != nil {
				a.log.Debug("jobs not woken after a change of limits, they wake on their own", "err", err)
			}
		}
	}
}
