package finance

import "github.com/llmguard/llmguard/internal/parquet"

// focusColumn is a column of the export.
type focusColumn struct {
	parquet.Column
	cell func(r *focusRow) parquet.Value
}

// Kinds of columns, named as FOCUS does.
const (
	text     = parquet.Text
	decimal  = parquet.Decimal
	dateTime = parquet.Time
)

// scale is the number of decimals of costs and prices, for nano-USD, and of quantities except
// counts.
const scale = 9

// needed is a column that is never null.
func needed(name string, kind parquet.Kind, cell func(r *focusRow) parquet.Value) focusColumn {
	c := focusColumn{parquet.Column{Name: name, Kind: kind}, cell}
	if kind == decimal {
		c.Scale = scale
	}
	return c
}

func nullable(name string, kind parquet.Kind, cell func(r *focusRow) parquet.Value) focusColumn {
	c := needed(name, kind, cell)
	c.Optional = true
	return c
}

// count is a column of whole numbers, which may be too large for decimals.
func count(name string, cell func(r *focusRow) parquet.Value) focusColumn {
	return focusColumn{parquet.Column{Name: name, Kind: decimal, Optional: true}, cell}
}

// never is a column for what llmguard has not: regions, commitments, reservations, invoices.
func never(name string, kind parquet.Kind) focusColumn {
	return nullable(name, kind, func(*focusRow) parquet.Value { return parquet.Value{} })
}

func fixed(s string) func(*focusRow) parquet.Value {
	return func(*focusRow) parquet.Value { return parquet.TextOf(s) }
}

func cost(r *focusRow) parquet.Value { return parquet.DecimalOf(int64(r.cost)) }

// ifUsage is a cell of rows of usage, and null in others.
func ifUsage(cell func(r *focusRow) parquet.Value) func(*focusRow) parquet.Value {
	return func(r *focusRow) parquet.Value {
		if !r.usage() {
			return parquet.Value{}
		}
		return cell(r)
	}
}

// ifTokens is a cell of rows that are priced by tokens.
func ifTokens(cell func(r *focusRow) parquet.Value) func(*focusRow) parquet.Value {
	return ifUsage(func(r *focusRow) parquet.Value {
		if !r.counted() {
			return parquet.Value{}
		}
		return cell(r)
	})
}

func unitPrice(r *focusRow) parquet.Value { return parquet.DecimalOf(r.unitPrice()) }

// focusColumns are the 57 columns of FOCUS 1.2, in its alphabetical order, and ours, which the
// specification has begin with x_.
func focusColumns() []focusColumn {
	vendor := func(r *focusRow) parquet.Value { return parquet.TextOf(r.vendor()) }
	return []focusColumn{
		never("AvailabilityZone", text),
		needed("BilledCost", decimal, cost),
		needed("BillingAccountId", text, func(r *focusRow) parquet.Value { return parquet.TextOf(r.account()) }),
		nullable("BillingAccountName", text, func(r *focusRow) parquet.Value { return parquet.TextOf(r.account()) }),
		needed("BillingAccountType", text, fixed("Provider Account")),
		needed("BillingCurrency", text, fixed("USD")),
		needed("BillingPeriodEnd", dateTime, func(r *focusRow) parquet.Value { return parquet.TimeOf(r.o.Month.End()) }),
		needed("BillingPeriodStart", dateTime, func(r *focusRow) parquet.Value { return parquet.TimeOf(r.o.Month.Begin()) }),
		never("CapacityReservationId", text),
		never("CapacityReservationStatus", text),
		needed("ChargeCategory", text, func(r *focusRow) parquet.Value { return parquet.TextOf(r.category()) }),
		nullable("ChargeClass", text, func(r *focusRow) parquet.Value {
			if r.Earlier {
				return parquet.TextOf("Correction")
			}
			return parquet.Value{}
		}),
		nullable("ChargeDescription", text, func(r *focusRow) parquet.Value { return parquet.TextOf(r.describe()) }),
		needed("ChargeFrequency", text, func(r *focusRow) parquet.Value {
			if r.usage() {
				return parquet.TextOf("Usage-Based")
			}
			return parquet.TextOf("One-Time")
		}),
		needed("ChargePeriodEnd", dateTime, func(r *focusRow) parquet.Value {
			return parquet.TimeOf(r.Day.AddDate(0, 0, 1))
		}),
		needed("ChargePeriodStart", dateTime, func(r *focusRow) parquet.Value { return parquet.TimeOf(r.Day) }),
		never("CommitmentDiscountCategory", text),
		never("CommitmentDiscountId", text),
		never("CommitmentDiscountName", text),
		never("CommitmentDiscountQuantity", decimal),
		never("CommitmentDiscountStatus", text),
		never("CommitmentDiscountType", text),
		never("CommitmentDiscountUnit", text),
		count("ConsumedQuantity", ifTokens(func(r *focusRow) parquet.Value { return parquet.DecimalOf(r.tokens) })),
		nullable("ConsumedUnit", text, ifTokens(fixed("Tokens"))),
		needed("ContractedCost", decimal, cost),
		nullable("ContractedUnitPrice", decimal, ifUsage(unitPrice)),
		needed("EffectiveCost", decimal, cost),
		never("InvoiceId", text),
		needed("InvoiceIssuerName", text, vendor),
		needed("ListCost", decimal, cost),
		nullable("ListUnitPrice", decimal, ifUsage(unitPrice)),
		nullable("PricingCategory", text, ifUsage(fixed("Standard"))),
		nullable("PricingCurrency", text, fixed("USD")),
		nullable("PricingCurrencyContractedUnitPrice", decimal, ifUsage(unitPrice)),
		needed("PricingCurrencyEffectiveCost", decimal, cost),
		nullable("PricingCurrencyListUnitPrice", decimal, ifUsage(unitPrice)),
		nullable("PricingQuantity", decimal, ifUsage(func(r *focusRow) parquet.Value {
			return parquet.DecimalOf(r.pricingQuantity())
		})),
		nullable("PricingUnit", text, ifUsage(func(r *focusRow) parquet.Value { return parquet.TextOf(r.pricingUnit()) })),
		needed("ProviderName", text, vendor),
		needed("PublisherName", text, vendor),
		never("RegionId", text),
		never("RegionName", text),
		nullable("ResourceId", text, func(r *focusRow) parquet.Value {
			if r.Key == "" {
				return parquet.Value{}
			}
			return parquet.TextOf(r.o.Org + "/" + r.Key)
		}),
		nullable("ResourceName", text, func(r *focusRow) parquet.Value { return textOrNull(r.Key) }),
		nullable("ResourceType", text, func(r *focusRow) parquet.Value {
			if r.Key == "" {
				return parquet.Value{}
			}
			return parquet.TextOf("API Key")
		}),
		needed("ServiceCategory", text, fixed("AI and Machine Learning")),
		needed("ServiceName", text, func(r *focusRow) parquet.Value { return parquet.TextOf(r.vendor() + " API") }),
		needed("ServiceSubcategory", text, fixed("Generative AI")),
		nullable("SkuId", text, func(r *focusRow) parquet.Value { return textOrNull(r.sku()) }),
		nullable("SkuMeter", text, func(r *focusRow) parquet.Value { return textOrNull(r.meter()) }),
		never("SkuPriceDetails", text),
		nullable("SkuPriceId", text, ifUsage(func(r *focusRow) parquet.Value {
			if r.sku() == "" {
				return parquet.Value{}
			}
			return parquet.TextOf(r.sku() + "/" + r.class)
		})),
		needed("SubAccountId", text, func(r *focusRow) parquet.Value { return parquet.TextOf(r.o.Org) }),
		needed("SubAccountName", text, func(r *focusRow) parquet.Value { return parquet.TextOf(r.orgName()) }),
		needed("SubAccountType", text, fixed("Organization")),
		nullable("Tags", text, func(r *focusRow) parquet.Value { return textOrNull(r.tags()) }),
		nullable("x_Detail", text, func(r *focusRow) parquet.Value { return textOrNull(r.detail()) }),
		needed("x_ProviderId", text, func(r *focusRow) parquet.Value { return parquet.TextOf(r.Provider) }),
		needed("x_TokenClass", text, func(r *focusRow) parquet.Value { return parquet.TextOf(r.class) }),
	}
}
