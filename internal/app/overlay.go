package app

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/internal/tenants"
	tenancy "github.com/llmguard/llmguard/internal/tenants/settings"
)

// keySecret is the record of a key with its current hash.
type keySecret struct {
	*tenants.Key
	id, now, userBorn string
}

// complete adds to the principals of an org what only the records of keys have: secrets from before a rotation.
func (k keySecret) complete(to map[string]auth.Principal) {
	p, ok := to[k.now]
	if !ok {
		return
	}
	p.Born, p.UserBorn, p.Lineage = k.Born, k.userBorn, cmp.Or(k.Lineage, p.Lineage)
	to[k.now] = p
	if k.Previous == "" {
		return
	}
	if p.Expires.IsZero() || k.PreviousUntil.Before(p.Expires) {
		p.Expires = k.PreviousUntil
	}
	p.Lineage, p.Replaced = cmp.Or(k.PreviousLineage, auth.LineageOf(k.Previous)), true
	to[k.Previous] = p
}

// overlay applies records to an org, whose lists the caller owns. defaults are those of every org.
func overlay(org *config.Org, record *tenants.Tenant, defaults config.Defaults) (secrets []keySecret, err error) {
	if record.Org != nil {
		if err := patch(org, record.Org.Fields); err != nil {
			return nil, err
		}
	}
	users := usersOf(org, defaults)
	for _, id := range slices.Sorted(maps.Keys(record.Users)) {
		if err := patch(users.of(id), record.Users[id].Fields); err != nil {
			return nil, fmt.Errorf("user %s: %w", id, err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(record.Keys)) {
		k := record.Keys[id]
		to := keyOf(users.of(k.User), id)
		if err := patch(to, k.Fields); err != nil {
			return nil, fmt.Errorf("key %s: %w", id, err)
		}
		if k.Hash != "" {
			to.Hash = k.Hash
		}
		one := keySecret{k, id, to.Hash, ""}
		if u := record.Users[k.User]; u != nil {
			one.userBorn = u.Born
		}
		secrets = append(secrets, one)
	}
	for _, id := range orgsFirst(record.Limits) {
		owner, name := tenants.SplitLimitID(id)
		if err := patch(users.limitOf(owner, name), record.Limits[id].Fields); err != nil {
			return nil, fmt.Errorf("limit %s: %w", strings.ReplaceAll(id, " ", "/"), err)
		}
	}
	return secrets, nil
}

// orgsFirst sorts the ids of limits such that a limit comes after those of the same name that it
// copies: first the org's, then those of groups, plans and users.
func orgsFirst(limits map[string]*tenants.Limit) []string {
	rank := func(id string) int {
		owner, _ := tenants.SplitLimitID(id)
		kind, _ := tenancy.SplitOwner(owner)
		return slices.Index([]string{"org", "group", "plan", "user"}, kind)
	}
	return slices.SortedFunc(maps.Keys(limits), func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
	})
}

func patch[T any](to *T, fields tenancy.Fields[T]) error {
	if len(fields) == 0 {
		return nil
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return config.Patch(to, raw)
}

// orgUsers finds the users of an org by id: an org may have tens of thousands.
type orgUsers struct {
	org      *config.Org
	at       map[string]int // in org.Users
	defaults config.Defaults
}

func usersOf(org *config.Org, defaults config.Defaults) orgUsers {
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
	return tenancy.FindOrAdd(&u.Keys, id, func() config.Key { return config.NewKey(id) })
}

// limitOf returns a limit of the org, or of one of its groups, plans or users, which it creates if
// necessary. If there is none, it adds a copy of the one with the same name that it would replace, or
// else a new one.
func (u orgUsers) limitOf(owner, name string) *config.Limit {
	org, list := u.org, &u.org.Limits
	var user *config.User
	switch kind, id := tenancy.SplitOwner(owner); kind {
	case "group":
		org.Groups = slices.Clone(org.Groups)
		list = &tenancy.FindOrAdd(&org.Groups, id, func() config.Group { return config.Group{ID: id} }).Limits
	case "plan":
		org.Plans = slices.Clone(org.Plans)
		list = &planOf(&org.Plans, id).Limits
	case "user":
		user = u.of(id)
		list = &user.Limits
	}
	*list = slices.Clone(*list)
	return limitIn(list, owner, name, u.defaults.Above(org, owner, user))
}

// limitIn returns the limit of a name in a list. If there is none, it adds a copy of the one in
// above, or else a new one.
func limitIn(list *[]config.Limit, owner, name string, above []config.Limit) *config.Limit {
	return tenancy.FindOrAdd(list, name, func() config.Limit {
		made := config.NewLimit(owner, name)
		if replaced := tenancy.Find(above, name); replaced != nil {
			only := cmp.Or(made.Only, replaced.Only)
			made = *replaced
			made.Only = only
		}
		return made
	})
}

// planOf returns a plan in a list, creating it if necessary.
func planOf(list *[]config.Plan, id string) *config.Plan {
	return tenancy.FindOrAdd(list, id, func() config.Plan { return config.Plan{ID: id} })
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
	lists := slices.Collect(org.LimitLists())
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
