package config

import (
	"errors"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// NewOrg returns an org as the file would have it that says nothing of it.
func (c *Config) NewOrg(id string) Org {
	o := Org{ID: id}
	setDefaults(reflect.ValueOf(&o).Elem())
	o.OnStoreFailure = c.Store.OnFailure
	return o
}

// NewUser does the same for a user, and NewKey and NewLimit for theirs.
func NewUser(id string) User {
	u := User{ID: id}
	setDefaults(reflect.ValueOf(&u).Elem())
	return u
}

// NewKey returns a key of which nothing is known but its id.
func NewKey(id string) Key { return Key{ID: id} }

// NewLimit returns a limit without a shape; user is whose own it is, if any.
func NewLimit(user, name string) Limit {
	l := Limit{Name: name}
	setDefaults(reflect.ValueOf(&l).Elem())
	if user != "" {
		l.Subject, l.Only = "user", user
	}
	return l
}

// Patch puts fields, a JSON object with the names of the file, over what to points to: an
// Org, User, Key or Limit. It reads as strictly as the file is read, but fills in nothing
// from the environment. The error is for whoever wrote the fields.
func Patch(to any, fields []byte) error {
	d := newPatch()
	root := d.root(fields)
	if root == nil {
		return d.patchError()
	}
	for _, known := range []string{"id", "name", "hash", "bucket.capacity"} { // what must be there is there already
		d.marks[known] = mark{}
	}
	d.section("", root, reflect.ValueOf(to).Elem())
	return d.patchError()
}

// CheckOrg checks an org that was put together from the file and elsewhere, as
// the file's own are checked.
func (c *Config) CheckOrg(o *Org) error {
	d := newPatch()
	d.markLimits("org", o.Limits)
	for i := range o.Users {
		d.markLimits(element("org.users", i), o.Users[i].Limits)
	}
	var providers []string
	for _, p := range c.Providers {
		providers = append(providers, p.ID)
	}
	d.org("org", o, c, providers, names{}, names{})
	return d.patchError()
}

// CheckDefaults checks the limits of every org, which were put together likewise.
func (c *Config) CheckDefaults() error {
	d := newPatch()
	d.markLimits("defaults", c.Defaults.Limits)
	d.defaults(c.Defaults.Limits)
	return d.patchError()
}

func newPatch() *document {
	return &document{
		name: "request", marks: map[string]mark{}, anchors: map[string]ast.Node{},
		getenv: func(string) (string, bool) { return "", false },
	}
}

// markLimits notes which parts limits have, where the file would.
func (d *document) markLimits(path string, list []Limit) {
	for i, l := range list {
		at := element(path+".limits", i)
		for name, given := range map[string]bool{
			"amount": l.Amount.N > 0, "window": l.Window > 0, "calendar": l.Calendar != "", "bucket": l.Bucket.Capacity.N > 0,
		} {
			if given {
				d.marks[at+"."+name] = mark{}
			}
		}
	}
}

// patchError is what is wrong, without places in a file.
func (d *document) patchError() error {
	if len(d.errs) == 0 {
		return nil
	}
	var all []string
	for _, e := range d.errs {
		text := e.Message
		if e.Path != "" {
			text = e.Path + ": " + text
		}
		all = append(all, text)
	}
	return errors.New(strings.Join(all, "; "))
}
