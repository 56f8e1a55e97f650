package config

import (
	"cmp"
	"errors"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// NewOrg returns an org with the defaults of the file.
func (c *Config) NewOrg(id string) Org {
	o := Org{ID: id}
	setDefaults(reflect.ValueOf(&o).Elem())
	o.OnStoreFailure = c.Store.OnFailure
	return o
}

// NewUser returns a user with the defaults of the file.
func NewUser(id string) User {
	u := User{ID: id}
	setDefaults(reflect.ValueOf(&u).Elem())
	return u
}

// NewKey returns a key with only an id.
func NewKey(id string) Key { return Key{ID: id} }

// NewLimit returns a limit without a shape. owner is "" for a limit of an org, a user, or a group or
// plan as in settings.Owner.
func NewLimit(owner, name string) Limit {
	l := Limit{Name: name}
	setDefaults(reflect.ValueOf(&l).Elem())
	kind, id := settings.SplitOwner(owner)
	limitList{kind: kind, id: id}.own(&l, false)
	return l
}

// Patch applies fields, a JSON object with the names of the file, to an Org, User, Key or Limit
// that to points to. It is as strict as Parse, but expands nothing from the environment. The error
// is for the author of the fields.
func Patch(to any, fields []byte) error {
	d := newDocument(patchName, func(string) (string, bool) { return "", false })
	root := d.root(fields)
	if root == nil {
		return d.mistakes.patchError("", &Org{})
	}
	for _, known := range []string{"id", "name", "hash", "bucket.capacity"} { // required fields are already set
		d.mistakes.marks[known] = mark{}
	}
	d.section("", root, reflect.ValueOf(to).Elem())
	return d.mistakes.patchError("", &Org{})
}

// patchName replaces the file name in errors about a patch.
const patchName = "request"

// CheckOrg checks an org that was assembled from the file and other sources like those in the file.
func (c *Config) CheckOrg(o *Org) error {
	m := &mistakes{name: patchName, marks: map[string]mark{}}
	m.markLimits(limitLists("org", o))
	m.markBrakes("org.brakes", o.Brakes)
	m.obey("org", reflect.ValueOf(o).Elem())
	newOrgRules(m, c).check("org", o)
	return m.patchError("org", o)
}

// CheckDefaults checks the limits of every org, which were assembled likewise.
func (c *Config) CheckDefaults() error {
	m := &mistakes{name: patchName, marks: map[string]mark{}}
	m.markLimits(limitLists("defaults", defaultsOrg(c)))
	m.obey("defaults", reflect.ValueOf(&c.Defaults).Elem())
	checkDefaults(m, c)
	return m.patchError("defaults", defaultsOrg(c))
}

// WithOrgs returns the configuration with the orgs of a file that has only these; nil if it has more. Users, and keys
// of users, that the file does not list stay. Secrets may be missing in the environment.
func (c *Config) WithOrgs(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := newDocument(path, os.LookupEnv)
	d.optional = always
	var file struct {
		Orgs []Org `yaml:"orgs"`
	}
	root := d.root(data)
	if pairs, _ := entries(root); len(pairs) != 1 || pairs[0].Key.GetToken().Value != "orgs" {
		return nil, nil
	}
	d.section("", root, reflect.ValueOf(&file).Elem())
	out := *c
	out.Orgs = slices.Clone(c.Orgs)
	rules := newOrgRules(&d.mistakes, &out)
	for i := range file.Orgs {
		o := &file.Orgs[i]
		o.OnStoreFailure = cmp.Or(o.OnStoreFailure, c.Store.OnFailure)
		finishLimits(&d.mistakes, limitLists(element("orgs", i), o))
		d.mistakes.obey(element("orgs", i), reflect.ValueOf(o).Elem())
		rules.check(element("orgs", i), o)
		for _, u := range settings.FindOrAdd(&out.Orgs, o.ID, func() Org { return *o }).Users {
			now := settings.FindOrAdd(&o.Users, u.ID, func() User { return u })
			if len(now.Keys) == 0 {
				now.Keys = u.Keys
			}
		}
		*settings.FindOrAdd(&out.Orgs, o.ID, func() Org { return *o }) = *o
	}
	if len(d.mistakes.errs) > 0 {
		return nil, d.mistakes.errs
	}
	return &out, nil
}

// markLimits records which parts limits have, as reading a file would.
func (m *mistakes) markLimits(lists []limitList) {
	for _, list := range lists {
		for i, l := range list.limits {
			at := element(list.path+".limits", i)
			for name, given := range map[string]bool{
				"amount": l.Amount.N > 0, "window": l.Window > 0, "calendar": l.Calendar != "",
				"bucket": l.Bucket.Capacity.N > 0,
			} {
				if given {
					m.marks[at+"."+name] = mark{}
				}
			}
		}
	}
}

// markBrakes does the same for the rules of brakes.
func (m *mistakes) markBrakes(path string, list []Brake) {
	for i, b := range list {
		m.marks[element(path, i)+".when."+b.When.Rule()] = mark{}
	}
}

// patchError returns the mistakes, named by limits, users and keys of o instead of places in a file.
// root is the prefix that all paths share.
func (m *mistakes) patchError(root string, o *Org) error {
	if len(m.errs) == 0 {
		return nil
	}
	var all []string
	var field string
	for _, e := range m.errs {
		text := e.Message
		var thing string
		thing, field = named(strings.TrimPrefix(strings.TrimPrefix(e.Path, root), "."), o)
		for _, part := range []string{field, thing} {
			if part != "" {
				text = part + ": " + text
			}
		}
		all = append(all, text)
	}
	if len(all) > 1 {
		return errors.New(strings.Join(all, "; "))
	}
	return &settings.FieldError{Field: field, Message: all[0]}
}

// named splits a path below an org, or below the defaults, into the thing that contains it and the
// field.
func named(path string, o *Org) (thing, field string) {
	of, limits := "", o.Limits
	if i, rest, ok := cutElement(path, "groups"); ok && i < len(o.Groups) {
		thing, of, path, limits = "group "+o.Groups[i].ID, "group "+o.Groups[i].ID+"/", rest, o.Groups[i].Limits
	}
	if i, rest, ok := cutElement(path, "plans"); ok && i < len(o.Plans) {
		thing, of, path, limits = "plan "+o.Plans[i].ID, "plan "+o.Plans[i].ID+"/", rest, o.Plans[i].Limits
	}
	if i, rest, ok := cutElement(path, "users"); ok && i < len(o.Users) {
		u := &o.Users[i]
		thing, of, path, limits = "user "+u.ID, u.ID+"/", rest, u.Limits
		if i, rest, ok := cutElement(path, "keys"); ok && i < len(u.Keys) {
			return "key " + u.Keys[i].ID, rest
		}
	}
	if i, rest, ok := cutElement(path, "limits"); ok && i < len(limits) {
		return "limit " + of + limits[i].Name, rest
	}
	return thing, path
}

// cutElement cuts "name[3]." from the start of a path.
func cutElement(path, name string) (i int, rest string, ok bool) {
	path, ok = strings.CutPrefix(path, name+"[")
	if !ok {
		return 0, "", false
	}
	number, rest, _ := strings.Cut(path, "]")
	i, err := strconv.Atoi(number)
	return i, strings.TrimPrefix(rest, "."), err == nil
}
