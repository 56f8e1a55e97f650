package app_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/diagnose"
)

// TestMachine checks that check finds unreadable certificates, unwritable directories and
// ports in use, without writing anything.
func TestMachine(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed below
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const head = "providers: [{id: p, base_url: https://api.openai.com/v1}]\norgs: [{id: acme}]\n"
	ports := "listen: 127.0.0.1:0\nadmin: {listen: \"127.0.0.1:0\"}\n"
	below := filepath.Join(file, "below")
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":                        {ports, ""},
		"directories that can be made":   {ports + "store: {journal_dir: " + dir + "/a/b}\nfiles: {store: " + dir + "/c}\nledger: {export_dir: " + dir + "}\n", ""},
		"a journal where it cannot be":   {ports + "store: {journal_dir: " + below + "}\n", "warning store.journal_dir"},
		"files where they cannot be":     {ports + "files: {store: " + file + "}\n", "warning files.store"},
		"files in a bucket":              {ports + "files: {store: \"s3://bucket?region=r\"}\n", ""},
		"exports where they cannot be":   {ports + "ledger: {export_dir: " + below + "}\n", "warning ledger.export_dir"},
		"a certificate that is missing":  {ports + "tls: {cert_file: " + dir + "/none, key_file: " + file + "}\n", "warning tls.cert_file"},
		"a key that is missing":          {ports + "tls: {cert_file: " + file + ", key_file: " + dir + "/none}\n", "warning tls.key_file"},
		"a certificate that is none":     {ports + "tls: {cert_file: " + file + ", key_file: " + file + "}\n", "warning tls.cert_file"},
		"authorities of Redis, missing":  {ports + "redis: {addresses: [\"127.0.0.1:1\"], tls: {enabled: true, ca_file: " + dir + "/none}}\n", "warning redis.tls.ca_file"},
		"authorities of Redis, none":     {ports + "redis: {addresses: [\"127.0.0.1:1\"], tls: {enabled: true, ca_file: " + file + "}}\n", "warning redis.tls.ca_file"},
		"a port that is taken":           {"listen: " + taken.Addr().String() + "\nadmin: {listen: \"127.0.0.1:0\"}\n", "warning listen"},
		"an admin port that is taken":    {"listen: 127.0.0.1:0\nadmin: {listen: \"" + taken.Addr().String() + "\"}\n", "warning admin.listen"},
		"an address of another machine":  {"listen: 192.0.2.1:80\nadmin: {listen: \"127.0.0.1:0\"}\n", "warning listen"},
		"certificates of administrators": {"listen: 127.0.0.1:0\nadmin: {listen: \"127.0.0.1:0\", tls: {cert_file: " + file + ", key_file: " + dir + "/none}}\n", "warning admin.tls.key_file"},
	} {
		list, got := found(t, head+tc.text, func(cfg *config.Config) []diagnose.Finding {
			return app.CheckMachine(cfg, diagnose.Warning, func() bool { return false })
		})
		if got != tc.want {
			t.Errorf("%s: got %q, want %q: %+v", name, got, tc.want, list)
		}
	}
	list, got := found(t, head+"listen: "+taken.Addr().String()+"\nadmin: {listen: \"127.0.0.1:0\"}\n", func(cfg *config.Config) []diagnose.Finding {
		return app.CheckMachine(cfg, diagnose.Error, func() bool { return true })
	})
	if got != "ok listen" || !strings.Contains(list[0].What, "already runs here") {
		t.Errorf("the port of llmguard with this file: got %q %+v, want it in order", got, list)
	}
	list, _ = found(t, head+"listen: 192.0.2.1:80\nadmin: {listen: \"127.0.0.1:0\"}\n", func(cfg *config.Config) []diagnose.Finding {
		return app.CheckMachine(cfg, diagnose.Error, func() bool { return false })
	})
	if len(list) != 1 || strings.Contains(list[0].Fix, "Stop the process that uses the port") || !strings.Contains(list[0].Fix, "ip address") {
		t.Errorf("an address of another machine: got %+v, want the address to be named as what is wrong", list)
	}
	t.Setenv("TMPDIR", below)
	list, _ = found(t, head+ports+"memory: {spool: 1GB}\n", func(cfg *config.Config) []diagnose.Finding {
		return app.CheckMachine(cfg, diagnose.Error, func() bool { return false })
	})
	if len(list) != 1 || list[0].Level != diagnose.Error || !strings.Contains(list[0].Fix, "TMPDIR") {
		t.Errorf("a temporary directory that cannot be: got %+v", list)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("got %v %v in the directory, want nothing written", entries, err)
	}
}
