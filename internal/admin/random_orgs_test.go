package admin_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// drawn makes random settings. It notes the fields that got a value other than the usual one.
type drawn struct {
	*rand.Rand
	set map[string]bool // "Org.Name"
}

// pick returns one of a list.
func (d *drawn) pick(list ...string) string { return list[d.IntN(len(list))] }

// some returns a part of a list.
func (d *drawn) some(list ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(string) bool { return d.IntN(2) == 0 })
}

// special are the values of fields that must agree with something else.
func (d *drawn) special(field string) any {
	switch field {
	case "Org.Providers":
		return d.some("openai", "spare")
	case "Org.Spread":
		return 1 + 15*d.IntN(2)
	case "Org.Plan", "User.Plan", "Key.Plan":
		return d.pick("pro", "free")
	case "User.Group":
		return "research"
	case "Org.Labels", "User.Labels", "Key.Labels":
		return map[string]string{"project": fmt.Sprint("p", d.IntN(99)), "session": "s"}
	case "User.Priority", "Key.Priority":
		return "low" // not above max_priority
	case "Key.Scopes":
		return d.some("calls", "embeddings", "jobs")
	case "Runs.MaxDepth":
		return d.IntN(5)
	case "Limit.Endpoints":
		return d.some("chat.*", "embeddings")
	case "Limit.Subject":
		return d.pick("user", "key", "user+session")
	case "Limit.TZ":
		return d.pick("Europe/Berlin", "Asia/Tokyo")
	}
	return nil
}

// fill sets fields of a section to random values, about two of three.
func (d *drawn) fill(v reflect.Value) {
	for _, f := range settings.RuntimeFields(v.Type()) {
		if d.IntN(3) == 0 {
			continue
		}
		one, name := v.Field(f.Index), v.Type().Name()+"."+v.Type().Field(f.Index).Name
		d.set[name] = true
		if value := d.special(name); value != nil {
			one.Set(reflect.ValueOf(value))
			continue
		}
		if settings.IsSection(f.Type) {
			d.fill(one)
			continue
		}
		switch to := one.Addr().Interface().(type) {
		case *string:
			*to = fmt.Sprint(f.Name, " & ", d.IntN(1000))
			if len(f.Enum) > 0 {
				*to = d.pick(f.Enum...)
			}
		case *bool:
			*to = d.IntN(2) == 0
		case *int:
			*to = 1 + d.IntN(1000)
		case *int64:
			*to = 1 + d.Int64N(1e6)
		case *time.Duration:
			*to = time.Duration(60+d.IntN(86400)) * time.Second
		case *settings.Percent:
			*to = settings.Percent(1 + d.IntN(100))
		case *settings.Size:
			*to = settings.Size(1 + d.Int64N(1e9))
		case *settings.Quantity:
			*to = settings.Quantity{N: (1 + d.Int64N(1e9)) * 1000, Money: true}
		case *settings.Rate:
			*to = settings.Rate{Quantity: settings.Quantity{N: 1 + d.Int64N(1e9), Money: true}, Per: time.Hour}
		case *time.Time:
			*to = time.Date(2100, 1, 1, 0, 0, d.IntN(1e6), 0, time.UTC)
		case *[]string:
			*to = d.some("gpt-*", "o3", "text-embedding-*")
		case *[]netip.Prefix:
			*to = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", d.IntN(256)))}
		default:
			panic("no random value for " + name)
		}
	}
}

// org returns the fields of a random org.
func (d *drawn) org(usual settings.Org) settings.Org {
	o := usual
	d.fill(reflect.ValueOf(&o).Elem())
	if o.Cache.MaxAge == 0 {
		o.Cache = usual.Cache // what is off has no other fields
	}
	if o.OverLimit == "refuse" {
		o.MaxWait = 0
	}
	return o
}

// limit returns a random limit with one shape.
func (d *drawn) limit(usual settings.Limit) settings.Limit {
	l := usual
	d.fill(reflect.ValueOf(&l).Elem())
	l.Only = usual.Only
	if usual.Subject != "org" {
		l.Subject = usual.Subject // of a user, a group or a plan
	} else if l.Subject == "org" {
		l.Subject = "user"
	}
	if l.Subject == "user" && usual.Subject == "org" && d.IntN(2) == 0 {
		l.Only = "alice"
	}
	l.Amount, l.Bucket = settings.Quantity{N: 1 + d.Int64N(1e6), Money: l.Metric == "cost"}, settings.Bucket{}
	calendar := l.Calendar
	l.Window, l.Calendar, l.Starts = 0, "", ""
	switch shape := d.IntN(3); {
	case l.Metric == "concurrency":
	case shape == 0:
		l.Window, l.Fixed = time.Duration(1+d.IntN(3600))*time.Second, l.Fixed && !l.Exact
	case shape == 1:
		l.Calendar = cmp.Or(calendar, "day")
		l.Starts = map[string]string{"month": "15", "week": "sunday", "year": "04-06"}[calendar]
	default:
		l.Bucket = settings.Bucket{Capacity: l.Amount, Refill: settings.Rate{Quantity: l.Amount, Per: time.Hour}}
		l.Amount = settings.Quantity{}
	}
	if l.Window == 0 {
		l.Exact, l.Fixed = false, false
	}
	if l.Calendar == "" {
		l.TZ = ""
	}
	return l
}

// sendFields sends the fields of v that differ from those of usual, with more members.
func sendFields[T any](d *deployment, method, path string, v, usual *T, more object) {
	d.t.Helper()
	body := object{}
	maps.Copy(body, more)
	for name, raw := range settings.Changed(v, usual) {
		body[name] = raw
	}
	raw, err := json.Marshal(body)
	if err != nil {
		d.t.Fatal(err)
	}
	if w := d.send(method, path, string(raw)); w.Code >= 300 {
		d.t.Fatalf("%s %s %s: got %d %s", method, path, raw, w.Code, w.Body)
	}
}

// shows checks that a view has all fields of v.
func shows[T any](d *deployment, path string, v *T) {
	d.t.Helper()
	raw, err := json.Marshal(settings.All(v))
	if err != nil {
		d.t.Fatal(err)
	}
	d.has(path, d.expect(200, "GET", path, "", ""), string(raw))
}

// TestDeclarationsAreComplete: random orgs, users, keys and limits are shown as they were set, field by field. Their
// declarations change nothing where they come from, and make the same orgs on an empty Redis.
func TestDeclarationsAreComplete(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := &drawn{rand.New(rand.NewPCG(seed, 1)), map[string]bool{}}
	d := deploy(t, everything(t))
	const orgs = 25
	cfg, err := config.Parse("llmguard.yaml", []byte(fileText()+everything(t)), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{}
	for i := range orgs {
		id := fmt.Sprint("org", i)
		paths = append(paths, r.create(d, id, cfg.NewOrg(id))...)
	}
	for _, section := range []reflect.Type{
		reflect.TypeFor[settings.Org](), reflect.TypeFor[settings.User](), reflect.TypeFor[settings.Key](),
		reflect.TypeFor[settings.Limit](), reflect.TypeFor[settings.Cache](), reflect.TypeFor[settings.Runs](),
		reflect.TypeFor[settings.Bucket](),
	} {
		for _, f := range settings.RuntimeFields(section) {
			if name := section.Name() + "." + section.Field(f.Index).Name; !r.set[name] {
				t.Errorf("%s was never set", name)
			}
		}
	}
	before := map[string]object{}
	for _, path := range paths {
		before[path] = d.expect(200, "GET", path, "", "")
	}
	apply := func(id string, dry bool) object {
		body, err := json.Marshal(object{"org": before["/orgs/"+id+"/declaration"], "dry_run": dry})
		if err != nil {
			t.Fatal(err)
		}
		return d.expect(200, "POST", "/orgs/"+id+"/apply", string(body), "")
	}
	for i := range orgs {
		if plan := apply(fmt.Sprint("org", i), true); len(plan["changes"].([]any)) > 0 {
			t.Errorf("got the changes %v by an org's own declaration", plan)
		}
	}
	d = deploy(t, everything(t))
	for i := range orgs {
		apply(fmt.Sprint("org", i), false)
	}
	for path, want := range before {
		got := d.expect(200, "GET", path, "", "")
		for _, o := range []object{got, want} {
			delete(o, "created_at")
			delete(o, "updated_at")
			delete(o, "last4") // only of keys that were made here
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("GET %s: got\n%v, want\n%v", path, got, want)
		}
	}
}

// create makes a random org with users, keys and limits, and returns the paths that show them.
func (d *drawn) create(on *deployment, id string, usual settings.Org) []string {
	at := "/orgs/" + id
	on.expect(201, "POST", "/orgs", `{"id":"`+id+`"}`, "")
	on.expect(201, "POST", at+"/users", `{"id":"alice"}`, "")
	for i, owner := range []string{"", "plan:pro", "plan:free", "group:research", "alice"} {
		usual := config.NewLimit(owner, fmt.Sprint("l", i))
		if owner == "group:research" {
			usual.Subject = "user" // several parts cannot share an amount
		}
		l := d.limit(usual)
		kind, of := settings.SplitOwner(owner)
		query := url.Values{kind: {of}}.Encode()
		if owner == "" {
			query = ""
		}
		none := config.NewLimit(owner, l.Name)
		if kind == "user" || kind == "plan" {
			none.Subject, none.Only = l.Subject, l.Only
		}
		sendFields(on, "PATCH", at+"/limits/"+l.Name+"?"+query, &l, &none, nil)
		raw, err := json.Marshal(settings.Changed(&l, &none))
		if err != nil {
			on.t.Fatal(err)
		}
		want := parse(on.t, string(raw))
		want["name"] = l.Name
		if got := limitIn(map[string]any(on.expect(200, "GET", at+"/declaration", "", "")), l.Name); !reflect.DeepEqual(got, want) {
			on.t.Errorf("limit %s of %q: got %v, want %v", l.Name, owner, got, want)
		}
	}
	o := d.org(usual)
	if o.Spread > 1 {
		o.MaxPriority = "high"
	}
	sendFields(on, "PATCH", at, &o, &usual, nil)
	shows(on, at, &o)
	u, k, none := config.NewUser("bob"), settings.Key{}, config.NewUser("bob")
	d.fill(reflect.ValueOf(&u).Elem())
	sendFields(on, "POST", at+"/users", &u, &none, object{"id": "bob"})
	shows(on, at+"/users/bob", &u)
	d.fill(reflect.ValueOf(&k).Elem())
	sendFields(on, "POST", at+"/keys", &k, &settings.Key{}, object{"id": "b1", "user": "bob"})
	shows(on, at+"/keys/b1", &k)
	return []string{at, at + "/users/alice", at + "/users/bob", at + "/keys/b1", at + "/declaration"}
}

// limitIn returns the limit of this name in a declaration.
func limitIn(v any, name string) object {
	switch v := v.(type) {
	case map[string]any:
		if v["name"] == name {
			return v
		}
		for _, inner := range v {
			if o := limitIn(inner, name); o != nil {
				return o
			}
		}
	case []any:
		for _, inner := range v {
			if o := limitIn(inner, name); o != nil {
				return o
			}
		}
	}
	return nil
}
