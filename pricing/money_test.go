package pricing

import "testing"

func TestParseUSD(t *testing.T) {
	for text, want := range map[string]Nano{
		"$5": 5_000_000_000, "5.25": 5_250_000_000, "5 USD": 5_000_000_000, "0.000001": 1000,
		" $ 0.5 ": 500_000_000, "7usd": 7_000_000_000, "0": 0, "0.000000001": 1, "1e-9": 1,
		"9007199.254740991": MaxNano, "1.50000000000": 1_500_000_000,
	} {
		got, err := ParseUSD(text)
		if err != nil || got != want {
			t.Errorf("ParseUSD(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "$", "-1", "+1", "1.", ".5", "1,000", "0.0000000001", "9007199.254740992",
		"1e30", "NaN", "Inf", "0x10", "$5 USD", "USD", "1e", "1e+-3", "5 EUR", "1_000", "١",
	} {
		if got, err := ParseUSD(text); err == nil {
			t.Errorf("ParseUSD(%q) = %d, want an error", text, got)
		}
	}
}

func TestNanoString(t *testing.T) {
	for n, want := range map[Nano]string{
		0: "$0.000000000", 1_234_500: "$0.001234500", 5 * NanoPerUSD: "$5.000000000",
		-1: "-$0.000000001", -1 << 63: "-$9223372036.854775808", MaxNano: "$9007199.254740991",
	} {
		if got := n.String(); got != want {
			t.Errorf("Nano(%d) = %s, want %s", int64(n), got, want)
		}
	}
}

// TestNanoForPeople: amounts for people are rounded in integers, halves up.
func TestNanoForPeople(t *testing.T) {
	for n, want := range map[Nano][3]string{
		0:                     {"$0.00", "$0.00", "$0.0000"},
		1:                     {"$0.000000001", "$0.00", "$0.0000"},
		5 * NanoPerUSD / 1000: {"$0.005", "$0.01", "$0.0050"},
		1_234_500:             {"$0.001235", "$0.00", "$0.0012"},
		999_999_999:           {"$1.00", "$1.00", "$1.0000"},
		1_005_000_000:         {"$1.01", "$1.01", "$1.0050"},
		-4_000_850_000_000:    {"-$4000.85", "-$4000.85", "-$4000.8500"},
		MaxNano:               {"$9007199.25", "$9007199.25", "$9007199.2547"},
		-1 << 63:              {"-$9223372036.85", "-$9223372036.85", "-$9223372036.8548"},
	} {
		if got := [3]string{n.Short(), n.Rounded(2), n.Rounded(4)}; got != want {
			t.Errorf("%s: got %v, want %v", n, got, want)
		}
	}
}

// TestNanoExactly: amounts for APIs and messages lose nothing.
func TestNanoExactly(t *testing.T) {
	for n, want := range map[Nano][2]string{
		0: {"0.000000000", "$0.00"}, -1_200_000_000: {"-1.200000000", "-$1.20"}, 12_345_000_000: {"12.345000000", "$12.345"},
		1: {"0.000000001", "$0.000000001"}, -50_000_000_000: {"-50.000000000", "-$50.00"},
	} {
		if got := [2]string{n.Decimal(), n.Trimmed()}; got != want {
			t.Errorf("%s: got %v, want %v", n, got, want)
		}
	}
}

func FuzzParseUSD(f *testing.F) {
	for _, s := range []string{"$5", "5.25", "5 USD", "0.000001", "1.5e-07", "1e9999", "-0", "9007199.254740991"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseUSD(text)
		if err != nil {
			return
		}
		if n < 0 || n > MaxNano {
			t.Fatalf("ParseUSD(%q) = %d, out of range", text, n)
		}
		if again, err := ParseUSD(n.String()); err != nil || again != n {
			t.Fatalf("ParseUSD(%q) = %d, but its text reads back as %d, %v", text, n, again, err)
		}
	})
}
