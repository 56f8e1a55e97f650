package finance

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// focusColumn is a column of the export. An empty cell is null.
type focusColumn struct {
	name string
	cell func(r *focusRow) string
}

// text is a column whose cells a spreadsheet must not run as formulas.
func text(name string, of func(r *focusRow) string) focusColumn {
	return focusColumn{name, func(r *focusRow) string { return ledger.CellText(of(r)) }}
}

func fixed(name, s string) focusColumn {
	return focusColumn{name, func(*focusRow) string { return s }}
}

// never is a column for what llmguard has not: regions, commitments, reservations, invoices.
func never(name string) focusColumn { return fixed(name, "") }

// decimal is a column of amounts and quantities, in units of 1e-9, without trailing zeros: 0.00006135,
// 1200, -1.2.
func decimal(name string, of func(r *focusRow) int64) focusColumn {
	return focusColumn{name, func(r *focusRow) string {
		exact := pricing.Nano(of(r)).Decimal()
		return strings.TrimSuffix(strings.TrimRight(exact, "0"), ".")
	}}
}

func dateTime(name string, of func(r *focusRow) time.Time) focusColumn {
	return focusColumn{name, func(r *focusRow) string { return of(r).UTC().Format(time.RFC3339) }}
}

// when makes a column null in rows that are not as wanted.
func when(wanted func(r *focusRow) bool, c focusColumn) focusColumn {
	return focusColumn{c.name, func(r *focusRow) string {
		if !wanted(r) {
			return ""
		}
		return c.cell(r)
	}}
}

func either(name string, is func(r *focusRow) bool, yes, no string) focusColumn {
	return focusColumn{name, func(r *focusRow) string { return map[bool]string{true: yes, false: no}[is(r)] }}
}

func cost(r *focusRow) int64 { return int64(r.cost) }

// focusColumns are the 57 columns of FOCUS 1.2, in its alphabetical order, and ours, which the
// specification has begin with x_.
func focusColumns() []focusColumn {
	usage := (*focusRow).usage
	tokens := func(r *focusRow) bool { return r.usage() && r.counted() }
	model := func(r *focusRow) bool { return r.Model != "" }
	key := func(r *focusRow) bool { return r.Key != "" }
	return []focusColumn{
		never("AvailabilityZone"),
		decimal("BilledCost", cost),
		text("BillingAccountId", (*focusRow).account),
		text("BillingAccountName", (*focusRow).account),
		fixed("BillingAccountType", "Provider Account"),
		fixed("BillingCurrency", "USD"),
		dateTime("BillingPeriodEnd", func(r *focusRow) time.Time { return r.o.Month.End() }),
		dateTime("BillingPeriodStart", func(r *focusRow) time.Time { return r.o.Month.Begin() }),
		never("CapacityReservationId"),
		never("CapacityReservationStatus"),
		either("ChargeCategory", usage, "Usage", "Adjustment"),
		either("ChargeClass", func(r *focusRow) bool { return r.Earlier }, "Correction", ""),
		text("ChargeDescription", (*focusRow).describe),
		either("ChargeFrequency", usage, "Usage-Based", "One-Time"),
		dateTime("ChargePeriodEnd", func(r *focusRow) time.Time { return r.Day.AddDate(0, 0, 1) }),
		dateTime("ChargePeriodStart", func(r *focusRow) time.Time { return r.Day }),
		never("CommitmentDiscountCategory"),
		never("CommitmentDiscountId"),
		never("CommitmentDiscountName"),
		never("CommitmentDiscountQuantity"),
		never("CommitmentDiscountStatus"),
		never("CommitmentDiscountType"),
		never("CommitmentDiscountUnit"),
		when(tokens, focusColumn{"ConsumedQuantity", func(r *focusRow) string { return strconv.FormatInt(r.tokens, 10) }}),
		when(tokens, fixed("ConsumedUnit", "Tokens")),
		decimal("ContractedCost", cost),
		when(usage, decimal("ContractedUnitPrice", (*focusRow).unitPrice)),
		decimal("EffectiveCost", cost),
		never("InvoiceId"),
		text("InvoiceIssuerName", (*focusRow).vendor),
		decimal("ListCost", cost),
		when(usage, decimal("ListUnitPrice", (*focusRow).unitPrice)),
		when(usage, fixed("PricingCategory", "Standard")),
		fixed("PricingCurrency", "USD"),
		when(usage, decimal("PricingCurrencyContractedUnitPrice", (*focusRow).unitPrice)),
		decimal("PricingCurrencyEffectiveCost", cost),
		when(usage, decimal("PricingCurrencyListUnitPrice", (*focusRow).unitPrice)),
		when(usage, decimal("PricingQuantity", (*focusRow).pricingQuantity)),
		when(usage, either("PricingUnit", (*focusRow).counted, "1000000 Tokens", "Requests")),
		text("ProviderName", (*focusRow).vendor),
		text("PublisherName", (*focusRow).vendor),
		never("RegionId"),
		never("RegionName"),
		when(key, text("ResourceId", func(r *focusRow) string { return r.o.Org + "/" + r.Key })),
		text("ResourceName", func(r *focusRow) string { return r.Key }),
		when(key, fixed("ResourceType", "API Key")),
		fixed("ServiceCategory", "AI and Machine Learning"),
		text("ServiceName", func(r *focusRow) string { return r.vendor() + " API" }),
		fixed("ServiceSubcategory", "Generative AI"),
		when(model, text("SkuId", (*focusRow).sku)),
		text("SkuMeter", (*focusRow).meter),
		never("SkuPriceDetails"),
		when(usage, when(model, text("SkuPriceId", func(r *focusRow) string { return r.sku() + "/" + r.class }))),
		text("SubAccountId", func(r *focusRow) string { return r.o.Org }),
		text("SubAccountName", func(r *focusRow) string { return cmp.Or(r.o.OrgName, r.o.Org) }),
		fixed("SubAccountType", "Organization"),
		text("Tags", (*focusRow).tags),
		either("x_Detail", func(r *focusRow) bool { return r.Undetailed }, "no labels", ""),
		text("x_ProviderId", func(r *focusRow) string { return r.Provider }),
		text("x_TokenClass", func(r *focusRow) string { return r.class }),
	}
}

var vendors = [][2]string{
	{"openai.com", "OpenAI"},
	{"azure.com", "Microsoft"},
	{"azure.us", "Microsoft"},
	{"mistral.ai", "Mistral AI"},
	{"googleapis.com", "Google"},
	{"anthropic.com", "Anthropic"},
	{"amazonaws.com", "Amazon Web Services"},
	{"groq.com", "Groq"},
	{"together.xyz", "Together AI"},
	{"together.ai", "Together AI"},
	{"fireworks.ai", "Fireworks AI"},
	{"openrouter.ai", "OpenRouter"},
	{"deepseek.com", "DeepSeek"},
	{"x.ai", "xAI"},
	{"perplexity.ai", "Perplexity"},
	{"cohere.com", "Cohere"},
	{"cohere.ai", "Cohere"},
	{"cerebras.ai", "Cerebras"},
	{"deepinfra.com", "DeepInfra"},
}

// Vendor returns the name of the company that serves a provider, by the host of its API. Unlisted
// ones, such as servers of your own, have the provider's id.
func Vendor(p *providers.Provider) string {
	if p.BaseURL != nil {
		host := p.BaseURL.Hostname()
		for _, v := range vendors {
			if host == v[0] || strings.HasSuffix(host, "."+v[0]) {
				return v[1]
			}
		}
	}
	return p.ID
}
