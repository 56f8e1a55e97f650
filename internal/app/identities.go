package app

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/internal/tenants"
)

// Identities are the current orgs, users and keys: those of the file with the records in
// Redis applied to them, field by field. It is safe for concurrent use.
type Identities struct {
	Store *tenants.Store
	log   *slog.Logger
	put   func(*guard.Policy, *auth.Directory, map[string]int) // publishes a new state
	// stopped, if set, is called after every change before anything is rebuilt.
	stopped func()

	mu     sync.Mutex
	cfg    *config.Config
	base   *settings       // of cfg
	ruling *config.Config  // cfg with the records of all orgs applied to its defaults
	all    *tenants.Tenant // those records
	orgs   map[string]*madeOrg
	merged []config.Org

	current *guard.Policy
}

// madeOrg is an org and what it was built from.
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

// run publishes changes until ctx ends.
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

// Missed looks for keys that are newer than the known ones.
func (i *Identities) Missed(ctx context.Context) bool {
	if !i.Store.Missed(ctx) {
		return false
	}
	i.Update()
	return true
}

// orgIDs lists the current orgs.
func (i *Identities) orgIDs() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := make([]string, len(i.merged))
	for n := range i.merged {
		out[n] = i.merged[n].ID
	}
	return out
}

// Effective returns the file's configuration with the current orgs. Callers must not modify
// it.
func (i *Identities) Effective() *config.Config {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := *i.ruling
	c.Orgs = i.merged
	return &c
}

// Update rebuilds what changed and publishes the new state. An org whose records conflict
// with the file keeps its previous state, or the file's alone if it has none.
func (i *Identities) Update() {
	if i.stopped != nil {
		i.stopped()
	}
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

// make returns an org, reusing the previous one if nothing of it changed.
func (i *Identities) make(id string, file *config.Org, record *tenants.Tenant) *madeOrg {
	old := i.orgs[id]
	if old != nil && old.file == file && old.record == record && old.cfg == i.ruling {
		return old
	}
	made, err := i.makeOrg(i.ruling, id, file, record)
	if err == nil {
		for provider, own := range made.tenant.org.Credentials {
			if own == "" {
				i.log.Error("org credential not decrypted, calls with it fail: queue.seal_keys lacks the key that "+
					"encrypted it", "org", id, "provider", provider)
			}
		}
		return made
	}
	i.log.Error("org's runtime settings conflict with the configuration, keeping the previous ones", "org", id, "err", err)
	if old != nil || file == nil {
		return old
	}
	made, err = i.makeOrg(i.ruling, id, file, nil)
	if err != nil {
		made, _ = i.makeOrg(i.cfg, id, file, nil) // the file was checked
	}
	return made
}

// makeOrg is the function makeOrg that also checks an unmodified org of the file against
// changed defaults.
func (i *Identities) makeOrg(cfg *config.Config, id string, file *config.Org,
	record *tenants.Tenant,
) (*madeOrg, error) {
	made, err := makeOrg(cfg, i.base.seal, id, file, record)
	if err == nil && record == nil && cfg != i.cfg {
		err = cfg.CheckOrg(&made.org)
	}
	return made, err
}

// makeOrg applies an org's records to the file's org.
func makeOrg(cfg *config.Config, ring *seal.Ring, id string, file *config.Org,
	record *tenants.Tenant,
) (*madeOrg, error) {
	org := cfg.NewOrg(id)
	if file != nil {
		org = *file
		org.Limits, org.Users = slices.Clone(file.Limits), slices.Clone(file.Users)
	}
	var secrets []keySecret
	if record != nil {
		var err error
		secrets, err = overlay(&org, record, cfg.Defaults)
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
	for _, k := range secrets {
		k.complete(t.keys)
		t.org.KeyBorn[k.id], t.org.UserBorn[k.User] = k.Born, k.userBorn
	}
	return &madeOrg{file, record, cfg, org, t}, nil
}

// CheckOrg reports whether an org would be valid with these records or, for all orgs,
// whether each would.
func (i *Identities) CheckOrg(id string, record *tenants.Tenant) error {
	if id == tenants.AllOrgs {
		return i.checkAll(record)
	}
	_, err := i.MergeOrg(id, record)
	return err
}

// MergeOrg returns an org with these records applied to what the file has of it.
func (i *Identities) MergeOrg(id string, record *tenants.Tenant) (*config.Org, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	file := i.cfg.Tenants().Org(id)
	if file == nil && (record == nil || record.Org == nil) {
		return nil, errNoOrg
	}
	made, err := i.makeOrg(i.ruling, id, file, record)
	if err != nil {
		return nil, err
	}
	return &made.org, nil
}

// openIdentities reads the records of identities. While Redis is unavailable, the file's
// apply.
func (a *App) openIdentities(set *settings) {
	a.identity = tenants.New(a.rdb, tenants.Options{Log: a.log})
	ctx, cancel := context.WithTimeout(context.Background(), loadTime) //nolint:forbidigo // not part of a call
	defer cancel()
	if err := a.identity.Load(ctx); err != nil {
		a.log.Warn("runtime settings not readable, using only the file until they are", "err", err)
	}
	a.ids = newIdentities(a.identity, a.cfg, set, a.log)
	a.ids.Update()
}

// loadTime bounds reading all records at startup.
const loadTime = 30 * time.Second

// obey puts a new state of the identities into effect.
func (a *App) obey(p *guard.Policy, d *auth.Directory, weights map[string]int) {
	if err := a.queue.AddOwn(p.OwnPools()...); err != nil {
		a.log.Error("pools of org credentials not added", "err", err)
	}
	before := a.guard.Policy()
	a.guard.SetPolicy(p)
	a.obeyStops()
	if a.worker != nil {
		woken := changedOrgs(before, p)
		maps.Copy(woken, a.brakes.changed())
		a.wake(woken)
	}
	if a.callers != nil {
		a.callers.SetDirectory(d)
	}
	if err := a.queue.SetWeights(weights); err != nil {
		a.log.Error("queue weights not set", "err", err)
	}
	select {
	case a.limitsChanged <- struct{}{}:
	default:
	}
}

// obeyStops answers waiting callers whose spending has been stopped.
func (a *App) obeyStops() {
	if a.callers != nil {
		a.callers.ObeyStops()
	}
}

// Policy returns the current policy.
func (i *Identities) Policy() *guard.Policy {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current
}

// Ring returns the key ring that credentials are sealed with.
func (i *Identities) Ring() *seal.Ring {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.base.seal
}

// File returns the configuration without the records in Redis.
func (i *Identities) File() *config.Config {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cfg
}

// Refresh reads changed records, for programs that do not follow changes.
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

// Effective returns a configuration with the current orgs.
func Effective(ctx context.Context, cfg *config.Config, rdb redisconn.DB,
	log *slog.Logger,
) (*config.Config, error) {
	ids, err := LoadIdentities(ctx, cfg, rdb, log)
	if err != nil {
		return nil, err
	}
	return ids.Effective(), nil
}

// LoadIdentities returns the current identities of a configuration, for commands on this
// machine. Refresh keeps them up to date.
func LoadIdentities(ctx context.Context, cfg *config.Config, rdb redisconn.DB,
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

// changedOrgs returns the orgs whose limits or settings may have changed.
func changedOrgs(before, now *guard.Policy) map[string]bool {
	out := map[string]bool{}
	for id, org := range now.Orgs {
		if before == nil || before.Orgs[id] != org {
			out[id] = true
		}
	}
	return out
}

// wake makes [App.unpark] wake the jobs of these orgs.
func (a *App) wake(orgs map[string]bool) {
	if len(orgs) == 0 {
		return
	}
	select {
	case a.changed <- orgs:
	default: // they wake on their own
	}
}

// unpark lets the jobs of orgs whose limits changed retry them, until ctx ends.
func (a *App) unpark(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case orgs := <-a.changed:
			if err := a.queue.Unpark(ctx, orgs); err != nil {
				a.log.Debug("jobs not woken after a limit change, they resume on their own", "err", err)
			}
		}
	}
}
