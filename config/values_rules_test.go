package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// value is a text in the file, and its meaning or the reason why it is refused.
type value[T any] struct {
	text    string
	want    T
	message string
}

// checkValues reads each text in a file and compares its meaning.
func checkValues[T comparable](t *testing.T, file string, field func(*config.Config) T, cases []value[T]) {
	t.Helper()
	for _, c := range cases {
		text := strings.Replace(file, "VALUE", c.text, 1)
		cfg, err := config.Parse("f.yaml", []byte(whole(text)), lookup)
		switch {
		case c.message == "" && err != nil:
			t.Errorf("%s: got error %v, want %v", c.text, err, c.want)
		case c.message == "":
			if got := field(cfg); got != c.want {
				t.Errorf("%s: got %v, want %v", c.text, got, c.want)
			}
		case err == nil:
			t.Errorf("%s: got %v, want error %q", c.text, field(cfg), c.message)
		case !strings.Contains(err.Error(), ": "+c.message+"\n"):
			t.Errorf("%s: got error\n%v\nwant %q", c.text, err, c.message)
		}
	}
}

func noQuantity(text string) string {
	return fmt.Sprintf(`expected money such as "$5" or a whole number such as 1500, 150k or 2M, got %q`, text)
}

func noCount(text string) string {
	return fmt.Sprintf("expected a whole number such as 1500, 150k or 2M, got %q", text)
}

func TestCountForms(t *testing.T) {
	rpm := func(c *config.Config) int64 { return c.Providers[0].Pools[0].RPM }
	checkValues(t, `providers: [{id: openai, base_url: "https://a.example/v1", pools: [{id: p, rpm: VALUE}]}]`, rpm,
		[]value[int64]{
			{text: "1", want: 1},
			{text: "1500", want: 1500},
			{text: "1_500", want: 1500},
			{text: "150k", want: 150_000},
			{text: "1_0k", want: 10_000},
			{text: "2M", want: 2_000_000},
			{text: `"1500"`, want: 1500},
			{text: `"${RPM}"`, want: 150_000},
			{text: `"${RPM:-7}"`, want: 150_000},
			{text: `"${NOT_SET:-7}"`, want: 7},
			{text: `"${EMPTY:-7}"`, want: 7}, // an empty variable counts as not set
			{text: `"${EMPTY}"`, message: "the environment variable EMPTY is empty; give it a value, or write ${EMPTY:-default}"},
			{text: "9007199254740991", want: config.MaxQuantity},
			{text: "9007199254740992", message: "9007199254740992 is too large; the maximum is 9007199254740991"},
			{text: "9007199254741k", message: "9007199254741k is too large; the maximum is 9007199254740991"},
			{text: "99999999999999999999", message: "99999999999999999999 is too large; the maximum is 9007199254740991"},
			{text: "0", message: "must be above 0; omit it for no limit"},
			{text: "0k", message: "must be above 0; omit it for no limit"},
			{text: "-5", message: "-5 is negative"},
			{text: "-5k", message: "-5k is negative"},
			{text: "+5", message: noCount("+5")},
			{text: "007", message: noCount("007")},
			{text: "0x10", message: noCount("0x10")},
			{text: "1e3", message: noCount("1e3")},
			{text: "1.5k", message: noCount("1.5k")},
			{text: "2m", message: noCount("2m")},
			{text: "2K", message: noCount("2K")},
			{text: "2G", message: noCount("2G")},
			{text: `"1,500"`, message: noCount("1,500")},
			{text: `"15 k"`, message: noCount("15 k")},
			{text: "k", message: noCount("k")},
			{text: "_", message: noCount("_")},
			{text: `"80%"`, message: `expected a whole number, got "80%"; write this percentage without its sign: 80`},
		})
}

// TestSmallCountsAreBounded: fields of type int are bounded by the range of a 32-bit machine.
func TestSmallCountsAreBounded(t *testing.T) {
	lines := func(c *config.Config) int { return c.Batches.MaxLines }
	checkValues(t, "batches: {max_lines: VALUE}", lines, []value[int]{
		{text: "2147483647", want: 1<<31 - 1},
		{text: "2147483648", message: "2147483648 is too large"},
		{text: "3000M", message: "3000M is too large"},
	})
}

func noDuration(text string) string {
	return fmt.Sprintf("expected a duration such as 30s, 5m, 1h or 1d, got %q", text)
}

func TestDurationForms(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []value[time.Duration]{
		{text: "300ms", want: 300 * time.Millisecond},
		{text: "90s", want: 90 * time.Second},
		{text: "1h30m", want: 90 * time.Minute},
		{text: "1.5h", want: 90 * time.Minute},
		{text: "1d", want: day},
		{text: "7d12h", want: 7*day + 12*time.Hour},
		{text: "0d5s", want: 5 * time.Second},
		{text: "65535d", want: 65535 * day},
		{text: "0", want: 0},
		{text: "0s", want: 0},
		{text: "", message: `expected a duration such as 30s, 5m, 1h or 1d, got empty text`},
		{text: "s", message: noDuration("s")},
		{text: "d", message: noDuration("d")},
		{text: "1.5d", message: noDuration("1.5d")},
		{text: "-1d", message: noDuration("-1d")},
		{text: "1d1d", message: noDuration("1d1d")},
		{text: "12h7d", message: noDuration("12h7d")},
		{text: "1d-5s", message: noDuration("1d-5s")},
		{text: "+5s", message: noDuration("+5s")},
		{text: "5 s", message: noDuration("5 s")},
		{text: "1w", message: noDuration("1w")},
		{text: "5min", message: noDuration("5min")},
		{text: "65536d", message: noDuration("65536d")},
		{text: "-5s", message: "-5s is negative"},
		{text: "0d-5s", message: "0d-5s is negative"},
		{text: "30", message: noDuration("30") + "; a number alone has no unit, did you mean 30s?"},
		{text: "65535d989207h", want: 65535*day + 989_207*time.Hour},
		{text: "65535d989208h", message: "65535d989208h is too long"},
	} {
		got, err := settings.ParseDuration(c.text)
		checkOne(t, c, got, err)
	}
}

// checkOne compares the result of parsing a text.
func checkOne[T comparable](t *testing.T, c value[T], got T, err error) {
	t.Helper()
	message := ""
	if err != nil {
		message = err.Error()
	}
	switch {
	case message != c.message:
		t.Errorf("%q: got error %q, want %q", c.text, message, c.message)
	case err == nil && got != c.want:
		t.Errorf("%q: got %v, want %v", c.text, got, c.want)
	}
}

func TestQuantityForms(t *testing.T) {
	usd := func(nano int64) config.Quantity { return config.Quantity{N: nano, Money: true} }
	noMoney := func(text, why string) string {
		return fmt.Sprintf(`expected money such as "$5" or "$0.25", got %q%s`, text, why)
	}
	for _, c := range []value[config.Quantity]{
		{text: "1500", want: config.Quantity{N: 1500}},
		{text: "150k", want: config.Quantity{N: 150_000}},
		{text: "$5", want: usd(5e9)},
		{text: "$ 5", want: usd(5e9)},
		{text: "5 USD", want: usd(5e9)},
		{text: "$0.25", want: usd(25e7)},
		{text: "$0.000000001", want: usd(1)},
		{text: "$9007199", want: usd(9007199e9)},
		{text: "$9007199.254740991", want: usd(config.MaxQuantity)},
		{text: "$9007199.254740992", message: "$9007199.254740992 is too large; the maximum is $9007199"},
		{text: "$9007200", message: "$9007200 is too large; the maximum is $9007199"},
		{text: "$0.0000000001", message: noMoney("$0.0000000001", ": more decimals than can be kept exactly")},
		{text: "$0", message: "must be above 0; to disable a limit, set mode: off"},
		{text: "0", message: "must be above 0; to disable a limit, set mode: off"},
		{text: "$0.00", message: "must be above 0; to disable a limit, set mode: off"},
		{text: "$-5", message: noMoney("$-5", ": negative")},
		{text: "-$5", message: "-$5 is negative"},
		{text: "-5", message: "-5 is negative"},
		{text: "$5,50", message: noMoney("$5,50", "; put a point before cents, and no comma between thousands")},
		{text: "5$", message: noMoney("5$", "; put the $ before the number")},
		{text: "5 Dollars", message: noMoney("5 Dollars", "; put the $ before the number")},
		{text: "5.25", message: `expected money such as "$5.25" or a whole number, got "5.25"; money needs a $`},
		{text: "5,25", message: `expected money such as "$5.25" or a whole number, got "5,25"; money needs a $`},
		{text: "$", message: noMoney("$", ": not a decimal number")},
		{text: "$5k", message: noMoney("$5k", ": not a decimal number")},
		{text: "five", message: noQuantity("five")},
		{text: "€5", message: noQuantity("€5")},
	} {
		got, err := settings.ParseQuantity(c.text)
		checkOne(t, c, got, err)
	}
}

func TestSizeForms(t *testing.T) {
	noSize := func(text string) string {
		return fmt.Sprintf("expected a size such as 500KB, 32MB or 1GiB, got %q", text)
	}
	body := func(c *config.Config) config.Size { return c.Requests.MaxBody }
	checkValues(t, "requests: {max_body: VALUE}", body, []value[config.Size]{
		{text: "1", want: 1},
		{text: "700", want: 700},
		{text: "700B", want: 700},
		{text: "500KB", want: 500_000},
		{text: "500KiB", want: 500 << 10},
		{text: "32MB", want: 32_000_000},
		{text: "32MiB", want: 32 << 20},
		{text: "1GB", want: 1_000_000_000},
		{text: "1GiB", want: 1 << 30},
		{text: `"32 MB"`, want: 32_000_000},
		{text: "8589934591GiB", want: 8589934591 << 30},
		{text: "8589934592GiB", message: "8589934592GiB is too large"},
		{text: "0", message: "must be above 0; leave it out for the default, 32MB"},
		{text: "0KB", message: "must be above 0; leave it out for the default, 32MB"},
		{text: "-1", message: noSize("-1")},
		{text: "1.5MB", message: noSize("1.5MB")},
		{text: "32mb", message: noSize("32mb")},
		{text: "32M", message: noSize("32M")},
		{text: "32TB", message: noSize("32TB")},
		{text: "MB", message: noSize("MB")},
		{text: "1_000", message: noSize("1_000")},
		{text: "9223372036854775808", message: noSize("9223372036854775808")},
	})
}

func TestPercentForms(t *testing.T) {
	share := func(c *config.Config) config.Percent { return c.Store.LocalShare }
	no := func(text, hint string) string {
		return fmt.Sprintf("expected a percentage from 1%% to 100%%, got %q%s", text, hint)
	}
	checkValues(t, "store: {local_share: VALUE}", share, []value[config.Percent]{
		{text: "1%", want: 1},
		{text: "100%", want: 100},
		{text: `"50 %"`, want: 50},
		{text: "0%", message: no("0%", "")},
		{text: "101%", message: no("101%", "")},
		{text: "300%", message: no("300%", "")},
		{text: "-5%", message: no("-5%", "")},
		{text: "1.5%", message: no("1.5%", "")},
		{text: "half", message: no("half", "")},
		{text: "50", message: no("50", `; did you mean "50%"?`)},
		{text: "150", message: no("150", "")},
		{text: "0.5", message: no("0.5", `; did you mean "50%"?`)},
		{text: "0.001", message: no("0.001", `; did you mean "1%"?`)},
	})
}

func TestPercentOrOffForms(t *testing.T) {
	jitter := func(c *config.Config) config.PercentOrOff { return c.Headers.RetryJitter }
	checkValues(t, "headers: {retry_jitter: VALUE}", jitter, []value[config.PercentOrOff]{
		{text: "off", want: 0},
		{text: "25%", want: 25},
		{text: "0%", message: `expected a percentage from 1% to 100%, got "0%"; or off`},
		{text: "200%", message: `expected a percentage from 1% to 100%, got "200%"; or off`},
	})
}

func TestRateForms(t *testing.T) {
	const no = "expected an amount per time such as \"$10/1h\" or \"5000/1m\", got "
	usd := func(n int64, per time.Duration) config.Rate {
		return config.Rate{Quantity: config.Quantity{N: n * 1e9, Money: true}, Per: per}
	}
	refill := func(c *config.Config) config.Rate { return c.Orgs[0].Limits[0].Bucket.Refill }
	checkValues(t, `orgs: [{id: acme, limits: [{name: b, bucket: {capacity: $50, refill: "VALUE"}}]}]`, refill,
		[]value[config.Rate]{
			{text: "$10/1h", want: usd(10, time.Hour)},
			{text: "$10/h", want: usd(10, time.Hour)},
			{text: "$10/d", want: usd(10, 24*time.Hour)},
			{text: "$10 / 90m", want: usd(10, 90*time.Minute)},
			{text: "$10/1d12h", want: usd(10, 36*time.Hour)},
			{text: "$10", message: no + `"$10"`},
			{text: "$10 per hour", message: no + `"$10 per hour"`},
			{text: "$10/", message: `expected a duration such as 30s, 5m, 1h or 1d, got empty text`},
			{text: "$10/week", message: noDuration("week")},
			{text: "$10/5", message: noDuration("5") + "; a number alone has no unit, did you mean 5s?"},
			{text: "$0/h", message: "must be above 0; leave it out for a bucket that is never refilled"},
			{text: "-$5/h", message: "-$5 is negative"},
			{text: "$10/-1h", message: "-1h is negative"},
		})
}

func TestAddressForms(t *testing.T) {
	proxy := func(c *config.Config) string { return c.TrustedProxies[0].String() }
	no := func(text string) string {
		return fmt.Sprintf("expected an address such as 10.0.0.7 or a range such as 10.0.0.0/8, got %q", text)
	}
	checkValues(t, `trusted_proxies: ["VALUE"]`, proxy, []value[string]{
		{text: "10.0.0.7", want: "10.0.0.7/32"},
		{text: "10.0.0.0/8", want: "10.0.0.0/8"},
		{text: "0.0.0.0/0", want: "0.0.0.0/0"},
		{text: "::1", want: "::1/128"},
		{text: "2001:db8::/32", want: "2001:db8::/32"},
		{text: "10.0.0.300", message: no("10.0.0.300")},
		{text: "10.0.0.0/33", message: no("10.0.0.0/33")},
		{text: "proxy.internal", message: no("proxy.internal")},
		{text: "fe80::1%eth0", message: no("fe80::1%eth0")},
		{text: "10.1.2.3/8", message: "10.1.2.3/8 is an address inside a range; write the range as 10.0.0.0/8"},
		{text: "2001:db8::1/32", message: "2001:db8::1/32 is an address inside a range; write the range as 2001:db8::/32"},
	})
}

func TestListenForms(t *testing.T) {
	listen := func(c *config.Config) string { return c.Listen }
	no := func(text, why string) string { return fmt.Sprintf("expected host:port, got %q; %s", text, why) }
	checkValues(t, "listen: \"VALUE\"", listen, []value[string]{
		{text: "127.0.0.1:8080", want: "127.0.0.1:8080"},
		{text: ":8080", want: ":8080"},
		{text: "guard.internal:80", want: "guard.internal:80"},
		{text: "[::1]:8080", want: "[::1]:8080"},
		{text: "127.0.0.1:0", want: "127.0.0.1:0"},
		{text: "8080", message: `expected host:port, got "8080"; did you mean "127.0.0.1:8080"?`},
		{text: "localhost", message: no("localhost", "the port is missing")},
		{text: "::1:8080", message: no("::1:8080", "an IPv6 address needs brackets: [::1]:8080")},
		{text: "127.0.0.1:http", message: no("127.0.0.1:http", "the port is a number from 0 to 65535")},
		{text: "127.0.0.1:65536", message: no("127.0.0.1:65536", "the port is a number from 0 to 65535")},
		{text: "127.0.0.1:", message: no("127.0.0.1:", "the port is a number from 0 to 65535")},
		{text: "http://127.0.0.1:80", message: `expected host:port without scheme or path, got "http://127.0.0.1:80"`},
		{text: "127.0.0.1:80/v1", message: `expected host:port without scheme or path, got "127.0.0.1:80/v1"`},
	})
}

func TestExpiryForms(t *testing.T) {
	const file = `orgs: [{id: acme, users: [{id: a, keys: [{id: k, hash: "HASH", expires: VALUE}]}]}]`
	expires := func(c *config.Config) string {
		return c.Orgs[0].Users[0].Keys[0].Expires.UTC().Format(time.RFC3339)
	}
	no := func(text string) string {
		return fmt.Sprintf("expected a date such as 2027-01-31 or a time such as 2027-01-31T18:00:00Z, got %q", text)
	}
	text := strings.Replace(file, "HASH", "sha256:"+strings.Repeat("ab", 32), 1)
	checkValues(t, text, expires, []value[string]{
		{text: "2027-01-31", want: "2027-01-31T00:00:00Z"},
		{text: `"2027-01-31T18:00:00Z"`, want: "2027-01-31T18:00:00Z"},
		{text: `"2027-01-31T18:00:00+02:00"`, want: "2027-01-31T16:00:00Z"},
		{text: "2027-02-29", message: no("2027-02-29")},
		{text: `"2027-01-31 18:00"`, message: no("2027-01-31 18:00")},
		{text: "never", message: no("never")},
	})
}

func TestIDForms(t *testing.T) {
	id := func(c *config.Config) string { return c.Orgs[0].ID }
	no := func(text, hint string) string {
		return fmt.Sprintf("%q is not an id (1 to 64 of a-z, 0-9, _ and -)%s", text, hint)
	}
	long := strings.Repeat("a", 65)
	checkValues(t, "orgs: [{id: VALUE}]", id, []value[string]{
		{text: "acme", want: "acme"},
		{text: "a", want: "a"},
		{text: "7", want: "7"},
		{text: "0123_x-y", want: "0123_x-y"},
		{text: long[:64], want: long[:64]},
		{text: long, message: no(long[:60]+"…", "")},
		{text: "ACME", message: no("ACME", `; did you mean "acme"?`)},
		{text: "acme.eu", message: no("acme.eu", `; did you mean "acme-eu"?`)},
		{text: `" acme"`, message: `has leading or trailing spaces`},
		{text: "日本", message: no("日本", "")},
		{text: `""`, message: "is empty; give it a value or remove the line"},
	})
}

func TestBooleanForms(t *testing.T) {
	disabled := func(c *config.Config) bool { return c.Orgs[0].Disabled }
	checkValues(t, "orgs: [{id: acme, disabled: VALUE}]", disabled, []value[bool]{
		{text: "true", want: true},
		{text: "false", want: false},
		{text: `"${NOT_SET:-true}"`, want: true},
		{text: "on", message: `expected true or false, got "on"`},
		{text: "1", message: `expected true or false, got "1"`},
		{text: "TRUE", message: `expected true or false, got "TRUE"`},
	})
}

// TestTextForms: text is taken as written; nothing is trimmed or joined silently.
func TestTextForms(t *testing.T) {
	name := func(c *config.Config) string { return c.Orgs[0].Name }
	checkValues(t, "orgs:\n  - id: acme\n    name: VALUE\n", name, []value[string]{
		{text: "Acme Corp.", want: "Acme Corp."},
		{text: `"Acme \"A\" Corp."`, want: `Acme "A" Corp.`},
		{text: "'It''s Acme'", want: "It's Acme"},
		{text: "|\n      Acme", want: "Acme"},
		{text: "Bücher & Söhne", want: "Bücher & Söhne"},
		{text: `"$$5"`, want: "$5"},
		{text: "|\n      two\n      lines", message: "contains a line break"},
		{text: `"a\0b"`, message: "contains a line break"},
		{text: "true", message: `expected text, got true; put it in quotes: "true"`},
		{text: "1.5", message: `expected text, got the number 1.5; put it in quotes: "1.5"`},
		{text: "~", message: "has no value; give it one or remove the line"},
		{text: "{a: b}", message: "expected a single value, got a mapping"},
		{text: "[a]", message: "expected a single value, got a list"},
	})
}
