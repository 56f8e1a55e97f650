package admin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// everything is what fileText lacks for every field of an org to be possible.
func everything(t *testing.T) string {
	return fmt.Sprintf("labels: [{name: project, from: [key]}, {name: session, from: [header X-Session, key]}]\n"+
		"store: {journal_dir: %q}\n", t.TempDir())
}

// written loads the records that a test file has.
type written struct {
	Records map[string]string
	Views   map[string]object
}

// TestRecordsOfThePreviousVersion: records in which the previous version set every field have the same effect, and a
// change of one leaves its others as they were.
func TestRecordsOfThePreviousVersion(t *testing.T) {
	raw, err := os.ReadFile("testdata/records_before.json")
	if err != nil {
		t.Fatal(err)
	}
	var before written
	if err := json.Unmarshal(raw, &before); err != nil {
		t.Fatal(err)
	}
	d := deploy(t, everything(t))
	for _, err := range []error{
		d.rdb.HSet(t.Context(), "lg:{identity:}:records", before.Records).Err(),
		d.rdb.Set(t.Context(), "lg:{identity:}:last", "1-1", 0).Err(), // of a change that the stream has no more
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	d.api = serve(t, fileText()+everything(t), d.rdb)
	for path, want := range before.Views {
		got := d.expect(200, "GET", path, "", "")
		delete(got, "old_key_until") // past it is null
		delete(want, "old_key_until")
		if strings.HasSuffix(path, "acme/declaration") {
			delete(keyOf(got, "alice", "k1"), "hash") // of this run's file
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("GET %s: got\n%v, want\n%v", path, got, want)
		}
	}
	d.expect(200, "PATCH", "/orgs/acme", `{"cache":{"always":false},"runs":{"max_open":null}}`, "")
	var record, now object
	err = d.rdb.HGet(t.Context(), "lg:{identity:}:records", "org acme acme").Scan(&jsonText{&now})
	if err == nil {
		err = json.Unmarshal([]byte(before.Records["org acme acme"]), &record)
	}
	if err != nil {
		t.Fatal(err)
	}
	record["cache"].(map[string]any)["always"] = false
	delete(record["runs"].(map[string]any), "max_open")
	record["updated_at"] = now["updated_at"]
	if !reflect.DeepEqual(now, record) {
		t.Errorf("got the record\n%v, want\n%v", now, record)
	}
}

// jsonText is a text in Redis that is JSON.
type jsonText struct{ to any }

func (j *jsonText) UnmarshalBinary(raw []byte) error { return json.Unmarshal(raw, j.to) }

// keyOf returns a key in a declaration.
func keyOf(declaration object, user, key string) map[string]any {
	for _, u := range declaration["users"].([]any) {
		if u := u.(map[string]any); u["id"] == user {
			for _, k := range u["keys"].([]any) {
				if k := k.(map[string]any); k["id"] == key {
					return k
				}
			}
		}
	}
	return nil
}
