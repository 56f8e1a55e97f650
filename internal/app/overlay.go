package app

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/internal/tenants"
)

// proxyKey is the hash of a key before its rotation.
type proxyKey struct {
	hash, now string
	until     time.Time
}

// overlay applies records to an org, whose lists the caller owns. defaults are the limits
// of every org.
func overlay(org *config.Org, record *tenants.Tenant, defaults []config.Limit) (previous []proxyKey, err error) {
	if record.Org != nil {
		if err := patch(org, record.Org.OrgSpec); err != nil {
			return nil, err
		}
	}
	users := usersOf(org, defaults)
	for _, id := range slices.Sorted(maps.Keys(record.Users)) {
		if err := patch(users.of(id), record.Users[id].UserSpec); err != nil {
			return nil, fmt.Errorf("user %s: %w", id, err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(record.Keys)) {
		k := record.Keys[id]
		to := keyOf(users.of(k.User), id)
		if err := patch(to, k.KeySpec); err != nil {
			return nil, fmt.Errorf("key %s: %w", id, err)
		}
		if k.Hash != "" {
			to.Hash = k.Hash
		}
		if k.Previous != "" {
			previous = append(previous, proxyKey{k.Previous, to.Hash, k.PreviousUntil})
		}
	}
	for _, id := range orgsFirst(record.Limits) {
		user, name := tenants.SplitLimitID(id)
		if err := patch(users.limitOf(user, name), record.Limits[id].LimitSpec); err != nil {
			return nil, fmt.Errorf("limit %s: %w", strings.ReplaceAll(id, " ", "/"), err)
		}
	}
	return previous, nil
}

// orgsFirst sorts the ids of limits such that a user's own limit comes after the org's of
// the same name, which it copies.
func orgsFirst(limits map[string]*tenants.Limit) []string {
	return slices.SortedFunc(maps.Keys(limits), func(a, b string) int {
		ofA, _ := tenants.SplitLimitID(a)
		ofB, _ := tenants.SplitLimitID(b)
		return cmp.Or(strings.Compare(ofA, ofB), strings.Compare(a, b))
	})
}

func patch[T config.Org | config.User | config.Key | config.Limit](to *T, fields any) error {
	raw, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	if string(raw) == "{}" {
		return nil
	}
	return config.Patch(to, raw)
}

// orgUsers finds the users of an org by id: an org may have tens of thousands.
type orgUsers struct {
	org      *config.Org
	at       map[string]int // in org.Users
	defaults []config.Limit
}

func usersOf(org *config.Org, defaults []config.Limit) orgUsers {
	u := orgUsers{org, make(map[string]int, len(org.Users)), defaults}
	for i := range org.Users {
		u.at[org.Users[i].ID] = i
	}
	return u
}

// of returns a user of the org, creating it if necessary.
func (u orgUsers) of(id string) *config.User {
	i, known := u.at[id]
	if !known {
		i = len(u.org.Users)
		u.org.Users = append(u.org.Users, config.NewUser(id))
		u.at[id] = i
	}
	return &u.org.Users[i]
}

// keyOf returns a key of a user, creating it if necessary. The user gets its own copy of
// the list.
func keyOf(u *config.User, id string) *config.Key {
	u.Keys = slices.Clone(u.Keys)
	i := slices.IndexFunc(u.Keys, func(k config.Key) bool { return k.ID == id })
	if i < 0 {
		u.Keys = append(u.Keys, config.NewKey(id))
		i = len(u.Keys) - 1
	}
	return &u.Keys[i]
}

// limitOf returns a limit of the org or of a user. If there is none, it adds a copy of the
// one with the same name a level above (the org's for a user's, then the default), or else
// a new one.
func (u orgUsers) limitOf(user, name string) *config.Limit {
	org := u.org
	list := &org.Limits
	if user != "" {
		one := u.of(user)
		one.Limits = slices.Clone(one.Limits)
		list = &one.Limits
	}
	same := func(l config.Limit) bool { return l.Name == name }
	if i := slices.IndexFunc(*list, same); i >= 0 {
		return &(*list)[i]
	}
	made := config.NewLimit(user, name)
	for _, above := range [][]config.Limit{org.Limits, u.defaults} {
		if i := slices.IndexFunc(above, same); i >= 0 {
			made = above[i]
			if user != "" {
				made.Only = user
			}
			break
		}
	}
	*list = append(*list, made)
	return &(*list)[len(*list)-1]
}

// errNoOrg means that records belong to an org that does not exist.
var errNoOrg = errors.New("no such org")

// credentials decrypts an org's own credentials. One that cannot be decrypted is empty.
func credentials(org string, records map[string]*tenants.Credential, ring *seal.Ring) map[string]guard.Credential {
	out := make(map[string]guard.Credential, len(records))
	for provider, c := range records {
		text, err := ring.Open(c.Sealed, tenants.SealPlace(org, provider)...)
		if err != nil {
			text = nil
		}
		out[provider] = guard.Credential(text)
	}
	return out
}

// raise adds overrides to the limits of their names.
func raise(org *guard.Org, overrides map[string]*tenants.Override) {
	all := slices.SortedFunc(maps.Values(overrides), func(a, b *tenants.Override) int {
		return a.Created.Compare(b.Created)
	})
	lists := append(slices.Collect(maps.Values(org.UserLimits)), org.Limits)
	lists = slices.AppendSeq(lists, maps.Values(org.KeyLimits))
	for _, o := range all {
		for _, limits := range lists {
			for i := range limits {
				if limits[i].ID == o.Limit {
					limits[i].Raises = append(limits[i].Raises,
						budget.Raise{Only: o.Only, Add: o.Add, Amount: o.Amount, Until: o.Until})
				}
			}
		}
	}
}
