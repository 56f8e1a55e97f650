package checks

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestMachine: unreadable certificates, unwritable directories and ports in use are found, without writing anything.
func TestMachine(t *testing.T) {
	dir := t.TempDir()
	file, below := dir+"/file", dir+"/file/below"
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed below
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	pair := func(cert, key string) string { return "tls: {cert_file: " + cert + ", key_file: " + key + "}" }
	authorities := func(file string) string {
		return "redis: {addresses: [\"127.0.0.1:1\"], tls: {enabled: true, ca_file: " + file + "}}\n"
	}
	const other = "admin: {listen: \"127.0.0.1:0\"}\n"
	look := func(text string, change func(*examination)) []diagnose.Finding {
		e := read(t, text+provider+bounded)
		change(e)
		e.met = needFile
		e.meet(t.Context(), needMachine)
		e.locate()
		return e.findings
	}
	asItIs := func(*examination) {}
	for name, tc := range map[string]struct{ text, want string }{
		"nothing": {"", ""},
		"directories that can be made": {
			"store: {journal_dir: " + dir + "/a/b}\nfiles: {store: " + dir + "/c}\nledger: {export_dir: " + dir + "}\n", "",
		},
		"a journal where it cannot be":   {"store: {journal_dir: " + below + "}\n", "store.journal_dir: "},
		"files where they cannot be":     {"files: {store: " + file + "}\n", "files.store: "},
		"files in a bucket":              {"files: {store: \"s3://bucket?region=r\"}\n", ""},
		"exports where they cannot be":   {"ledger: {export_dir: " + below + "}\n", "ledger.export_dir: "},
		"a certificate that is missing":  {pair(dir+"/none", file) + "\n", "tls.cert_file: "},
		"a key that is missing":          {pair(file, dir+"/none") + "\n", "tls.key_file: "},
		"a certificate that is none":     {pair(file, file) + "\n", "tls.cert_file: "},
		"authorities of Redis, missing":  {authorities(dir + "/none"), "redis.tls.ca_file: "},
		"authorities of Redis, none":     {authorities(file), "redis.tls.ca_file: "},
		"a port that is taken":           {"listen: " + taken.Addr().String() + "\n" + other, "listen: "},
		"an admin port that is taken":    {"listen: 127.0.0.1:0\nadmin: {listen: \"" + taken.Addr().String() + "\"}\n", "admin.listen: "},
		"an address of another machine":  {"listen: 192.0.2.1:80\n" + other, "listen: "},
		"certificates of administrators": {"listen: 127.0.0.1:0\nadmin: {listen: \"127.0.0.1:0\", " + pair(file, dir+"/none") + "}\n", "admin.tls.key_file: "},
	} {
		var want []string
		if tc.want != "" {
			want = []string{"warning " + tc.want}
		}
		only(t, name, look(tc.text, asItIs), want...)
	}
	got := look("listen: "+taken.Addr().String()+"\n"+other, func(e *examination) {
		e.running = func(_ context.Context, path string) bool { return path == "listen" }
	})
	if len(got) != 1 || got[0].Level != diagnose.OK || !strings.Contains(got[0].What, "in use by this deployment") {
		t.Errorf("the port of llmguard with this file: got %+v, want it in order", got)
	}
	got = look("listen: 192.0.2.1:80\n"+other, func(e *examination) { e.lacking = diagnose.Error })
	only(t, "an address of another machine", got, "error listen: ")
	if strings.Contains(got[0].Fix, "Stop the process") || !strings.Contains(got[0].Fix, "ip address") {
		t.Errorf("an address of another machine: got %+v, want the address to be named as what is wrong", got)
	}
	t.Setenv("TMPDIR", below)
	e := read(t, "memory: {spool: 1GB}\n"+provider+bounded)
	var r diagnose.Report
	directories(t.Context(), e, &r)
	if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Fix, "TMPDIR") {
		t.Errorf("a temporary directory that cannot be: got %+v", r.Findings)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("got %v %v in the directory, want nothing written", entries, err)
	}
}

// TestOldPrices: prices that were not verified for 90 days are suspect, whatever models are used.
func TestOldPrices(t *testing.T) {
	e := read(t, provider+bounded)
	asOf := e.policy.Catalogue.AsOf()
	synctest.Test(t, func(t *testing.T) {
		for _, want := range [][]string{nil, {"warning the oldest price was last checked 91 days ago"}} {
			if want != nil {
				time.Sleep(time.Until(asOf.AddDate(0, 0, 91)))
			}
			e.met, e.findings = 0, nil
			e.meet(t.Context(), needModels)
			only(t, "old prices", e.findings, want...)
		}
	})
}

// TestLeftovers: Parquet files of an earlier version are named with what to use instead. Looking for them creates nothing.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	find := func(to string, want ...string) {
		t.Helper()
		e := read(t, provider+bounded)
		e.cfg.Finance.Export.To = to
		e.meet(t.Context(), needExports)
		only(t, to, e.findings, want...)
	}
	create := func(names ...string) {
		for _, name := range names {
			if err := os.WriteFile(dir+"/"+name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	create("focus-acme-2026-10.csv")
	for _, to := range []string{"", dir, dir + "/missing"} {
		find(to)
	}
	if _, err := os.Stat(dir + "/missing"); err == nil {
		t.Error("the directory was created")
	}
	create("focus-acme-2026-10.parquet", "focus-zeta-2026-10.parquet", "own.parquet")
	find(dir, "warning finance.export.to: Parquet files that are no longer updated: 2, such as focus-acme-2026-10.parquet")
}

// TestMoneyAndState: what is stopped, held too long, late, closed, paused, blocked or disabled is found in a real Redis.
func TestMoneyAndState(t *testing.T) {
	srv := redistest.Start(t)
	ctx, rdb, log := t.Context(), srv.Client(), slog.New(slog.DiscardHandler)
	e := read(t, "redis: {addresses: [\""+srv.Addr+"\"]}\n"+provider+"orgs: [{id: acme, "+limits+
		", webhooks: [{url: \"https://hooks.example/x\", secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]}]}, {id: zeta, "+limits+"}]\n")
	q, _, err := app.Queue(ctx, e.cfg, redistest.DB(rdb), log)
	if err != nil {
		t.Fatal(err)
	}
	hooks, err := app.Webhooks(e.cfg, redistest.DB(rdb), log)
	if err != nil {
		t.Fatal(err)
	}
	redis := func(args ...any) {
		t.Helper()
		if err := rdb.Do(ctx, args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	state := func(want ...string) []diagnose.Finding {
		t.Helper()
		o := examine(e.cfg, e.policy)
		o.rdb, o.parts = redistest.DB(rdb), &app.Parts{Budget: budget.New(redistest.DB(rdb), budget.Options{}), Queue: q, Webhooks: hooks}
		found := slices.DeleteFunc(o.state(ctx), func(f diagnose.Finding) bool { return f.Area == "redis" })
		only(t, "state", found, want...)
		return found
	}
	money := func(want ...string) {
		t.Helper()
		found := Deployment(ctx, e.cfg, e.policy, nil)
		only(t, "money", slices.DeleteFunc(found, func(f diagnose.Finding) bool { return f.Area == "redis" }), want...)
	}
	state()
	money()

	targets, err := hooks.Targets(ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	redis("hset", "lg:{acme}:webhooks:off", targets[0].ID, time.Now().Unix())
	redis("set", "lg:epoch", fmt.Sprint(time.Now().UnixMicro(), ".abc.lost"))
	redis("zadd", "lg:{p}:dead", time.Now().UnixMicro(), "{p}@acme:1")
	if err := cmp.Or(q.SetPaused(ctx, "p", true), q.Quota().Block(ctx, "p", time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, f := range state("error limit month of acme is closed until", "error limit month of zeta is closed until",
		"error pool p is paused by an operator", "error pool p is blocked by its provider for",
		"error webhook target hooks.example of acme is disabled", "warning pool p has 1 dead letters") {
		if f.Org == "" && f.Pool == "" || (f.Target != "") != strings.Contains(f.What, "webhook") {
			t.Errorf("got %+v, want its org, pool or target", f)
		}
	}

	redis("zadd", "lg:{acme}:leases", 1000, "h1")
	redis("rpush", "lg:{zeta}:reconcile", `{"at_us":1}`, `{"at_us":2}`)
	e.cfg.KillSwitch = "stop"
	money("error org acme: 1 hold not released a minute after expiry", "warning kill_switch: stop is set",
		"warning redis lost its data at", "warning org zeta: 2 charges arrived too late")
	redis("rpush", "lg:{zeta}:reconcile", "{")
	money("error cannot be checked", "warning kill_switch")
}
