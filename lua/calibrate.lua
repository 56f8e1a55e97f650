-- calibrate: adds a batch of observations to running estimates, once per batch. Libraries: time.
--
-- An entry is "since,updated,n,mean,dev,q,m,e1,e2..", all integers, times in ms: n observations of
-- x (their average, mean deviation and high quantile) and m of the averages e1, e2...
--
-- KEYS  1 entries (hash)  2 recent (zset: entry, ms of its last update)
--       3 the number of this process's last batch
-- ARGV  1 now  2 number of the batch  3 lifetime of KEYS 3, ms
--       4 lifetime of an entry without updates, ms  5 maximum entries  6 maximum n
--       then pairs entry, text: "=<name>" is stored as it is; otherwise observations
--       "x,e1,e2.." separated by ";", x empty if it is not known
-- Reply "added" or "again" (nothing was done)

local WINDOW = 50     -- averages weigh about this many observations
local START = 32      -- observations before the quantile is tracked separately
local QUANTILE = 0.98 -- the quantile
local STEP = 1000     -- smallest step of the quantile, in units of x

local entries, recent, last_batch = KEYS[1], KEYS[2], KEYS[3]
local given, number, batch_life, life, most_entries, most_n = unpack(ARGV, 1, 6)
most_n = tonumber(most_n)
local now = math.floor(now_us(given) / 1000)
local last = redis.call('GET', last_batch)
if last and tonumber(last) >= tonumber(number) then return 'again' end

local function toward(old, new, n)
  return math.floor(old + (new - old) / math.min(n, WINDOW) + 0.5)
end

-- learn adds one x to the average, the deviation and the quantile.
local function learn(entry, x)
  entry.n = entry.n + 1
  if entry.n > 1 then entry.dev = toward(entry.dev, math.abs(x - entry.mean), entry.n - 1) end
  entry.mean = toward(entry.mean, x, entry.n)
  if entry.n <= START then
    entry.q = entry.mean + math.floor(2.5 * entry.dev)
  else
    -- The steps are small enough not to stray. The bounds handle distributions that widen or narrow
    -- faster than the steps: 2 deviations are the 94th percentile of normal noise, 12 are beyond a
    -- tail of one in twenty.
    local step = math.max(entry.dev / 4, STEP)
    if x >= entry.q then
      entry.q = entry.q + QUANTILE * step
    else
      entry.q = entry.q - (1 - QUANTILE) * step
    end
    local above = math.max(2 * entry.dev, math.min(entry.q - entry.mean, 12 * entry.dev + STEP))
    entry.q = math.floor(entry.mean + above + 0.5)
  end
  if entry.n > most_n then entry.n = most_n end
end

-- average adds the moments e1, e2.. of one observation.
local function average(entry, values)
  entry.m = entry.m + 1
  for i, v in ipairs(values) do entry[i] = toward(entry[i] or 0, v, entry.m) end
  if entry.m > most_n then entry.m = most_n end
end

local function read(text)
  local entry = {}
  local i = 0
  local names = { 'since', 'updated', 'n', 'mean', 'dev', 'q', 'm' }
  for v in string.gmatch(text or '', '-?%d+') do
    i = i + 1
    entry[names[i] or i - #names] = tonumber(v)
  end
  if not entry.m or entry.updated + life < now then
    entry = { since = now, n = 0, mean = 0, dev = 0, q = 0, m = 0 }
  end
  return entry
end

local function write(entry)
  local out = { int(entry.since), int(now), int(entry.n), int(entry.mean), int(entry.dev), int(entry.q),
    int(entry.m) }
  for _, v in ipairs(entry) do out[#out + 1] = int(v) end
  return table.concat(out, ',')
end

for i = 7, #ARGV, 2 do
  local name, text = ARGV[i], ARGV[i + 1]
  if string.sub(text, 1, 1) ~= '=' then
    local entry = read(redis.call('HGET', entries, name))
    for one in string.gmatch(text, '[^;]+') do
      local x, rest = string.match(one, '^([^,]*)(.*)$')
      if x ~= '' then learn(entry, tonumber(x)) end
      local values = {}
      for v in string.gmatch(rest, '-?%d+') do values[#values + 1] = tonumber(v) end
      average(entry, values)
    end
    text = write(entry)
  end
  redis.call('HSET', entries, name, text)
  redis.call('ZADD', recent, int(now), name)
end

-- Remove entries without updates, and the oldest ones beyond the maximum.
local old = redis.call('ZRANGEBYSCORE', recent, '-inf', int(now - life), 'LIMIT', 0, 200)
for _, name in ipairs(old) do
  redis.call('ZREM', recent, name)
  redis.call('HDEL', entries, name)
end
local excess = redis.call('ZCARD', recent) - most_entries
if excess > 0 then
  for _, name in ipairs(redis.call('ZRANGE', recent, 0, int(excess - 1))) do
    redis.call('ZREM', recent, name)
    redis.call('HDEL', entries, name)
  end
end
redis.call('PEXPIRE', entries, life)
redis.call('PEXPIRE', recent, life)
redis.call('SET', last_batch, int(tonumber(number)), 'PX', batch_life)
return 'added'
