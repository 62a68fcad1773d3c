#![no_main]

whin_fuzz::fuzzer!(generation);
