--[[
A load for wrk that checks every answer.

  wrk ... -H "Name: value" -s check.lua URL -- BODY_FILE EXPECTED_FILE exact|loose|refused

exact: the status is 200 and the body equals EXPECTED_FILE, byte for byte.
refused: the status is 401.
loose: the status is 200 and the body ends as EXPECTED_FILE does, for a proxy that rewrites answers (END_BYTES).
Prints one line of JSON: requests, wrong answers, errors of the connections, microseconds.
]]
local END_BYTES = 14

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

function init(arguments)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.body = read(arguments[1])
  expected = read(arguments[2])
  isExact = arguments[3] == "exact"
  isRefused = arguments[3] == "refused"
  ending = expected:sub(-END_BYTES)
  wrong = 0
  example = ""
end

function response(status, _, body)
  if isRefused and status == 401 then return end
  if not isRefused and status == 200 and (body == expected or (not isExact and body:sub(-END_BYTES) == ending)) then return end
  wrong = wrong + 1
  if example == "" then example = status .. " " .. body:sub(1, 200) end
end

function done(summary, latency, _)
  local count, text = 0, ""
  for _, thread in ipairs(threads) do
    count = count + thread:get("wrong")
    if text == "" then text = thread:get("example") end
  end
  local errors = summary.errors
  print(string.format(
    '{"requests":%d,"microseconds":%d,"wrong":%d,"broken":%d,"p50":%d,"p99":%d,"example":"%s"}',
    summary.requests, summary.duration, count, errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99), (text:gsub('[%c"\\]', " "))
  ))
end
