package ledger

import (
	"strings"
	"testing"
	"time"
)

// TestLabelsText: Labels keep what they were made of, and refuse what would separate ids or records.
func TestLabelsText(t *testing.T) {
	all := map[string]string{"run": "(other)", "project": "a=b:c/@+~#%._-", "none": ""}
	l, err := NewLabels(all)
	if want := Labels("project=a=b:c/@+~#%._-,run=(other)"); err != nil || l != want {
		t.Fatalf("got %q, %v, want %q", l, err, want)
	}
	if l.Get("project") != all["project"] || l.Get("run") != OtherLabel || l.Get("pro") != "" {
		t.Errorf("%q has project %q, run %q", l, l.Get("project"), l.Get("run"))
	}
	if got := l.With("run", "").With("zone", "x"); got != "project=a=b:c/@+~#%._-,zone=x" {
		t.Errorf("With: got %q", got)
	}
	var back Labels
	text, err := l.MarshalJSON()
	if err != nil || back.UnmarshalJSON(text) != nil || back != l {
		t.Errorf("JSON %s is %q, want %q (%v)", text, back, l, err)
	}
	for _, wrong := range []map[string]string{
		{"user": "a"}, {"Run": "a"}, {"run": "a,b"}, {"run": "a b"}, {"run": "a|b"}, {"run": "a\x1fb"}, {"run": "{a}"}, {"run": strings.Repeat("a", 129)},
	} {
		if l, err := NewLabels(wrong); err == nil {
			t.Errorf("%v are labels %q, want an error", wrong, l)
		}
	}
}

// TestPlaces: parts are at equal distances in the slots of a cluster, and have one name each.
func TestPlaces(t *testing.T) {
	if got := crc16(0, "123456789"); got != 0x31c3 { // as in the specification of Redis Cluster
		t.Fatalf("crc16 = %x, want 31c3", got)
	}
	for _, org := range []string{"acme", "a", "finance-eu_2", "o1", "0123456789abcdefghij"} {
		for part := 1; part <= MostParts; part++ {
			place := PlaceOf(org, part)
			if got, n := SplitPlace(place); got != org || n != part {
				t.Errorf("%s is read as part %d of %s, want %d of %s", place, n, got, part, org)
			}
			slot := int(crc16(0, place)-crc16(0, org)) & (clusterSlots - 1)
			if want := (part - 1) * clusterSlots / MostParts; slot < want || slot >= want+clusterSlots/MostParts {
				t.Errorf("%s is %d slots after its org, want about %d", place, slot, want)
			}
		}
	}
}

func TestExportNames(t *testing.T) {
	for _, org := range []string{"..", ".", "a/b", "/etc", `a\b`, ""} {
		if f, err := openExport(t.TempDir(), org); err == nil {
			f.close()
			t.Errorf("org %q has a folder", org)
		}
	}
	for _, test := range [][2]string{{"1-0", "1-1"}, {"9-5", "10-0"}, {"1-9", "1-10"}} {
		if !earlier(test[0], test[1]) || earlier(test[1], test[0]) || earlier(test[0], test[0]) {
			t.Errorf("%s does not come before %s", test[0], test[1])
		}
	}
}

func TestLevelOf(t *testing.T) {
	for _, test := range []struct {
		sizes []int64
		most  int64
		want  int64
	}{
		{[]int64{50, 10, 5}, 30, 15},
		{[]int64{50, 50}, 30, 15},
		{[]int64{1, 100}, 30, 29},
	} {
		if got := levelOf(test.sizes, test.most); got != test.want {
			t.Errorf("level of %v in %d is %d, want %d", test.sizes, test.most, got, test.want)
		}
	}
	if got := levelOf([]int64{1, 2}, 3); got < 3 {
		t.Errorf("what is within the bound is cut to %d", got)
	}
}

// TestSource: hours are summed for days only, so an older period in steps is read from entries.
func TestSource(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Hour)
	for _, c := range []struct {
		age  time.Duration
		want Source
	}{{wholeDay, FromHours}, {12 * wholeDay, FromHours}, {14 * wholeDay, FromEntries}, {30 * wholeDay, FromEntries}} {
		q := Query{From: now.Add(-c.age), To: now.Add(-c.age + 12*time.Hour), Step: time.Hour}
		if got, _ := q.source(func(string) bool { return false }); got != c.want {
			t.Errorf("a period %v ago: got %s, want %s", c.age, got, c.want)
		}
	}
}

// The series of very many groups take no more memory than the entries behind them.
func TestSeriesAreSparse(t *testing.T) {
	from := time.Now().UTC().Truncate(time.Hour)
	r := newReading(nil, &Query{By: By("user"), Step: time.Minute, From: from, To: from.Add(1000 * time.Minute)})
	for _, user := range []string{"a", "b", "c"} {
		r.add(&Call{Org: "acme", User: user}, from.Add(5*time.Minute), true, Sums{Cost: 7})
	}
	cells := 0
	for _, row := range r.rows {
		cells += len(row.Series)
		if row.Series[5] != 7 {
			t.Errorf("got %v, want the cost in step 5", row.Series)
		}
	}
	if cells != 3 {
		t.Errorf("got %d amounts, want one for each call", cells)
	}
}
