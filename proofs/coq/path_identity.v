(* The path identity of Appendix B (Eq. 25-27) holds for every choice of proxies.

   Proved, for every finite V, every ordered field F, every n and every target p of mass 1 (its entries may even
   be negative): with any functions k_0, k_1, ... of the token, m_i = min(k_i, R_i), beta_i = |m_i|, R_0 = p and
   R_{i+1} = (R_i - m_i) / (1 - beta_i) wherever beta_i <> 1, the sum
       sum_{i<n} prod_{j<i} (1 - beta_j) m_i + prod_{j<n} (1 - beta_j) R_n
   is p at every token. Rounds are numbered from 0. Nothing is assumed about R_{i+1} if beta_i = 1: such a round
   ends the sum, since the later products are 0. The identity needs the minimum in such rounds only; without
   it, "m_i <= R_i where beta_i = 1" is enough (path_identity_any), and cannot be dropped (mutants.v).

   Nothing about the sampler enters, so the identity says nothing about the law that a rule emits.
   Left: nothing. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From Speculative Require Import laws.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section PathIdentity.
Variables (F : realFieldType) (V : finType).
Variables (p : V -> F) (R : nat -> V -> F).

(* What is accepted in the round i is any function m_i. *)
Section AnyRounds.
Variable m : nat -> V -> F.

Definition beta i : F := mass (m i).
Definition weight i : F := \prod_(j < i) (1 - beta j).
Definition path_sum n x : F := \sum_(i < n) weight i * m i x + weight n * R n x.

Hypothesis p_mass : mass p = 1.
Hypothesis R_first : R 0 =1 p.
Hypothesis R_next : forall i, beta i != 1 -> forall x, R i.+1 x = (R i x - m i x) / (1 - beta i).
Hypothesis m_below : forall i, beta i = 1 -> forall x, m i x <= R i x.

Lemma weightS i : weight i.+1 = weight i * (1 - beta i).
Proof. by rewrite /weight big_ord_recr. Qed.

Lemma path_sumS n x : path_sum n.+1 x = path_sum n x - weight n * (R n x - m n x) + weight n.+1 * R n.+1 x.
Proof. by rewrite /path_sum big_ord_recr /=; ring. Qed.

(* A residual that is reached is normalised. *)
Lemma residual_mass i : weight i != 0 -> mass (R i) = 1.
Proof.
elim: i => [_ | i IH]; first by rewrite (eq_mass R_first).
rewrite weightS mulf_eq0 negb_or => /andP[/IH Ri_mass beta_neq1].
have {}beta_neq1 : beta i != 1 by rewrite subr_eq0 eq_sym in beta_neq1.
rewrite (eq_mass (R_next beta_neq1)) /mass -mulr_suml -/(mass _) massB Ri_mass -/(beta i).
by rewrite mulfV // subr_eq0 eq_sym.
Qed.

Theorem path_identity_any n : path_sum n =1 p.
Proof.
elim: n => [x | n IH x].
  by rewrite /path_sum /weight !big_ord0 add0r mul1r R_first.
rewrite path_sumS IH weightS; have [beta1 | beta_neq1] := eqVneq (beta n) 1; last first.
  have nz : 1 - beta n != 0 by rewrite subr_eq0 eq_sym.
  by rewrite (R_next beta_neq1); field.
have [-> | weight_neq0] := eqVneq (weight n) 0; first by ring.
have -> : R n x = m n x.
  by apply/esym/(equal_mass (m_below beta1)); rewrite residual_mass.
by rewrite beta1; ring.
Qed.

(* A round with beta = 1 ends the sum. *)
Corollary path_identity_ends n :
  beta n = 1 -> forall x, \sum_(i < n.+1) weight i * m i x = p x.
Proof.
move=> beta1 x; rewrite -(path_identity_any n.+1 x) /path_sum.
by rewrite [in RHS]weightS beta1 subrr mulr0 mul0r addr0.
Qed.

End AnyRounds.

Variable k : nat -> V -> F.
Let m i x : F := Num.min (k i x) (R i x).

Theorem path_identity :
  mass p = 1 -> R 0 =1 p ->
  (forall i, beta m i != 1 -> forall x, R i.+1 x = (R i x - m i x) / (1 - beta m i)) ->
  forall n x, path_sum m n x = p x.
Proof.
move=> p_mass R_first R_next n x; apply: path_identity_any => // i _ y.
by rewrite /m le_minl lexx orbT.
Qed.

End PathIdentity.
